/** onnxruntime-web with its WebGPU provider, set up as its documentation says. */

import type * as Ort from 'onnxruntime-web';
import { elementsOf, type InputSpec } from './cases';
import {
  addressOf,
  type Engine,
  type EngineFacts,
  type EngineFiles,
  type Results,
  timed,
} from './engine';
import { ConsoleTap, misplaced, readPlacement } from './placement';

export const SCRIPT = 'ort.webgpu.min.mjs';
export const GLUE = 'ort-wasm-simd-threaded.asyncify.mjs';
export const WASM = 'ort-wasm-simd-threaded.asyncify.wasm';

export function makeOrt(
  { runtime, model }: EngineFiles,
  inputs: readonly InputSpec[],
): Engine {
  const script = addressOf(runtime[SCRIPT], 'text/javascript');
  const mjs = addressOf(runtime[GLUE], 'text/javascript');
  const wasm = addressOf(runtime[WASM], 'application/wasm');
  const file = addressOf(model, 'application/octet-stream');
  const tap = new ConsoleTap();
  let ort: typeof Ort | undefined;
  let session: Ort.InferenceSession | undefined;
  let feeds: Record<string, Ort.Tensor> = {};

  async function load(): Promise<void> {
    ort = (await import(script)) as typeof Ort;
    const { env, InferenceSession, Tensor } = ort;
    env.wasm.numThreads = 1;
    env.wasm.wasmPaths = { mjs, wasm };
    env.webgpu.powerPreference = 'high-performance';
    session = await InferenceSession.create(file, { executionProviders: ['webgpu'] });
    const names = session.inputNames;
    if (names.length !== inputs.length) {
      throw new Error(`inputs must be ${names.length}, got ${inputs.length}`);
    }
    feeds = Object.fromEntries(
      inputs.map((spec, index) => [
        names[index],
        new Tensor(spec.type, elementsOf(spec), spec.dims),
      ]),
    );
  }

  async function run(): Promise<Results> {
    if (!session) throw new Error('ort: first() must come before run()');
    const outputs = await session.run(feeds);
    return Promise.all(
      session.outputNames.map(async (name) => {
        const tensor = outputs[name] as Ort.Tensor;
        return (await tensor.getData(true)) as ArrayLike<number | bigint>;
      }),
    );
  }

  async function facts(): Promise<EngineFacts> {
    await release();
    const lines = await tap.listen(async () => {
      if (!ort) throw new Error('ort: first() must come before facts()');
      ort.env.logLevel = 'verbose';
      session = await ort.InferenceSession.create(file, {
        executionProviders: ['webgpu'],
        logSeverityLevel: 0,
      });
    });
    const nodes = readPlacement(lines);
    const failed = misplaced(nodes);
    return { ...(nodes ? { nodes } : {}), ...(failed ? { failed } : {}) };
  }

  async function release(): Promise<void> {
    const gone = session;
    session = undefined;
    await gone?.release();
  }

  return {
    first: () =>
      timed(async () => {
        await load();
        return run();
      }),
    run: () => timed(run),
    facts,
    dispose: async () => {
      await release();
      for (const address of [script, mjs, wasm, file]) URL.revokeObjectURL(address);
    },
  };
}
