/** This project's runtime as an engine of the bench page. */

import type * as Runtime from '../../src/index';
import { elementsOf, type InputSpec } from './cases';
import {
  addressOf,
  type Engine,
  type EngineFiles,
  type Results,
  timed,
} from './engine';

export const RUNTIME = 'executorch-webgpu.js';

export function makeOurs(
  { runtime, model }: EngineFiles,
  inputs: readonly InputSpec[],
): Engine {
  const script = addressOf(runtime[RUNTIME], 'text/javascript');
  let module: Runtime.Module | undefined;
  let given: Runtime.Tensor[] = [];

  async function run(): Promise<Results> {
    if (!module) throw new Error('ours: first() must come before run()');
    const outputs = await module.forward(given);
    return Promise.all(
      outputs.map(async (output) => {
        if (typeof output === 'number') return [output];
        if (typeof output === 'boolean') return [Number(output)];
        const data = await output.data();
        output.dispose();
        return data;
      }),
    );
  }

  return {
    first: () =>
      timed(async () => {
        const { Module, Tensor } = (await import(script)) as typeof Runtime;
        given = inputs.map(
          (spec) => new Tensor(spec.type, elementsOf(spec), spec.dims),
        );
        // The page's blob is not one of the frame's classes.
        module = await Module.load(new Blob([model]));
        return run();
      }),
    run: () => timed(run),
    facts: async () => ({ profiles: module?.stats().profiles ?? [] }),
    dispose: async () => {
      module?.dispose();
      URL.revokeObjectURL(script);
    },
  };
}
