/** The file that a visitor can send in, and the rows of the table that is made of it. */

import type { Sizes } from './cases';
import { geometricMean, median, spread } from './stats';

export const FORMAT = 1;
/** A peer that is further from the other than this part of the largest value is wrong. */
export const TOLERANCE = 0.01;

export type EngineName = 'ours' | 'ort';

export const ENGINE_TITLES: Record<EngineName, string> = {
  ours: 'executorch-webgpu',
  ort: 'onnxruntime-web',
};

/** What is known of one model in one engine. */
export interface EngineResult {
  /** Why there are no times, or none that count. */
  failed?: string;
  /** From the import of the runtime to the first results, without downloads. */
  firstMs?: number;
  /** Of every later run, in order. */
  samples: number[];
  /** Bytes of the page's JavaScript heap before, and the most that was seen. */
  heapBefore?: number;
  heapPeak?: number;
  /** Nodes by the provider that they were given to, as onnxruntime-web logs it. */
  nodes?: Record<string, number>;
  /** Kinds of device that the plans are for. */
  profiles?: string[];
}

export interface CaseResult {
  name: string;
  title: string;
  inputs: { type: string; dims: readonly number[] }[];
  /** Of the two results, as a part of the largest value; null if they do not compare. */
  difference: number | null;
  engines: Partial<Record<EngineName, EngineResult>>;
}

export interface RuntimeFiles {
  version: string;
  files: { file: string; bytes: number; gzip: number }[];
}

export type Runtimes = Record<EngineName, RuntimeFiles>;

export interface BenchResults {
  kind: 'executorch-webgpu-bench';
  format: number;
  date: string;
  browser: Record<string, unknown>;
  adapter: Record<string, unknown>;
  runtimes: Runtimes;
  settings: { rounds: number; sizes: Sizes; tolerance: number };
  cases: CaseResult[];
}

/** A line of the table. */
export interface Row {
  name: string;
  title: string;
  ours: Column | undefined;
  ort: Column | undefined;
  /** The peer's time divided by ours; above 1 we are faster. */
  ratio: number | undefined;
  firstRatio: number | undefined;
  notes: string[];
}

export interface Column {
  ms: number;
  spread: number;
  firstMs: number;
  heap: number | undefined;
}

export function gzipBytes({ files }: RuntimeFiles): number {
  return files.reduce((sum, { gzip }) => sum + gzip, 0);
}

function columnOf(result: EngineResult | undefined): Column | undefined {
  if (!result || result.failed !== undefined || result.samples.length === 0) {
    return undefined;
  }
  const { samples, firstMs = Number.NaN, heapBefore, heapPeak } = result;
  const heap =
    heapBefore === undefined || heapPeak === undefined
      ? undefined
      : heapPeak - heapBefore;
  return { ms: median(samples), spread: spread(samples), firstMs, heap };
}

/** What a reader must know of a peer before they look at its times. */
function notesOf(result: CaseResult): string[] {
  const notes: string[] = [];
  for (const [name, engine] of Object.entries(result.engines)) {
    const title = ENGINE_TITLES[name as EngineName];
    if (engine.failed !== undefined) notes.push(`${title}: ${engine.failed}`);
    const others = Object.entries(engine.nodes ?? {}).filter(
      ([provider]) => provider !== 'WebGpuExecutionProvider',
    );
    for (const [provider, count] of others) {
      const all = Object.values(engine.nodes ?? {}).reduce((a, b) => a + b, 0);
      notes.push(`${title}: ${count} of ${all} nodes on ${provider}`);
    }
  }
  return notes;
}

export function rowOf(result: CaseResult): Row {
  const ours = columnOf(result.engines.ours);
  const ort = columnOf(result.engines.ort);
  return {
    name: result.name,
    title: `${result.title}, ${result.inputs[0]?.dims.join('x') ?? ''}`,
    ours,
    ort,
    ratio: ours && ort ? ort.ms / ours.ms : undefined,
    firstRatio: ours && ort ? ort.firstMs / ours.firstMs : undefined,
    notes: notesOf(result),
  };
}

export interface Means {
  count: number;
  ratio: number;
  firstRatio: number;
}

/** Over the rows that both engines ran; undefined if there is none. */
export function meansOf(rows: readonly Row[]): Means | undefined {
  const both = rows.filter(({ ratio }) => ratio !== undefined);
  if (both.length === 0) return undefined;
  return {
    count: both.length,
    ratio: geometricMean(both.map(({ ratio }) => ratio as number)),
    firstRatio: geometricMean(both.map(({ firstRatio }) => firstRatio as number)),
  };
}
