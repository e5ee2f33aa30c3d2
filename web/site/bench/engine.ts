/** One runtime with one model, in a frame of its own: files, first run, later runs. */

import type { InputSpec } from './cases';

/** Files by their names, in the browser's hands: a download is never timed. */
export type Blobs = Record<string, Blob>;

export interface EngineFiles {
  /** The scripts and the WebAssembly of the runtime. */
  runtime: Blobs;
  model: Blob;
}

export type Results = ArrayLike<number | bigint>[];

/** What a frame can do; all times are its own. */
export interface Engine {
  /** Imports the runtime, loads the model, runs it once; results are in host memory. */
  first(): Promise<{ ms: number; results: Results }>;
  /** Runs once more: from inputs to results in host memory. */
  run(): Promise<{ ms: number; results: Results }>;
  /** What else is known of what was run; called last, and not timed. */
  facts(): Promise<EngineFacts>;
  dispose(): Promise<void>;
}

export interface EngineFacts {
  nodes?: Record<string, number>;
  profiles?: string[];
  /** Why the times are not those of a run on WebGPU. */
  failed?: string;
}

export type MakeEngine = (files: EngineFiles, inputs: readonly InputSpec[]) => Engine;

/** An address of a file that is here already; scripts and WebAssembly need their type. */
export function addressOf(blob: Blob | undefined, type: string): string {
  if (!blob) {
    throw new Error(`a runtime must have its files, got none of ${type}`);
  }
  return URL.createObjectURL(new Blob([blob], { type }));
}

export async function timed<T>(
  work: () => Promise<T>,
): Promise<{ ms: number; results: T }> {
  const began = performance.now();
  const results = await work();
  return { ms: performance.now() - began, results };
}
