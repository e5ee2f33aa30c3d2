/** What a run's time went to. */

import type { Output } from './method';
import type { DispatchTime } from './player/replay';

/** The dispatches of one kernel for one op. */
export interface ProfileRow {
  op: string;
  kernel: string;
  count: number;
  ms: number;
}

export interface Profile {
  /** Of the whole call, on the host's clock. */
  ms: number;
  /** Of all dispatches together. */
  gpuMs: number;
  /** Whether the GPU's clock timed the dispatches; else the host's, one by one. */
  isTimedByGpu: boolean;
  dispatches: DispatchTime[];
  /** By op and kernel, those first that took longest. */
  rows: ProfileRow[];
  /** What the call gave. */
  outputs: Output[];
}

export function summarize(
  dispatches: DispatchTime[],
  ms: number,
  isTimedByGpu: boolean,
  outputs: Output[],
): Profile {
  const rows = new Map<string, ProfileRow>();
  for (const { op, kernel, ms: spent } of dispatches) {
    const key = `${op}\n${kernel}`;
    const row = rows.get(key) ?? { op, kernel, count: 0, ms: 0 };
    row.count++;
    row.ms += spent;
    rows.set(key, row);
  }
  return {
    ...{ ms, isTimedByGpu, dispatches, outputs },
    gpuMs: dispatches.reduce((sum, each) => sum + each.ms, 0),
    rows: [...rows.values()].sort((a, b) => b.ms - a.ms),
  };
}
