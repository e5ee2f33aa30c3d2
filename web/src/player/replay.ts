/**
 * Submits the dispatches of a plan in parts, so that the GPU starts before all is
 * encoded, the page gets its turns, and no submit keeps the GPU from drawing it for long.
 *
 * How long a part took is known when the GPU says that it is done. A plan that is known
 * to be fast is submitted without waiting; of another, two parts are under way at most.
 */

import type { Gpu } from '../gpu/device';
import { turn } from '../turn';
import type { LivePlan, Step } from './live_plan';

// Dispatches of the first part; the next ones are twice as long each.
const FIRST_PART = 16;
// Milliseconds that a part should take where the GPU is slow.
const PART_MS = 25;
// Milliseconds of the main thread, after which the page gets a turn.
const TURN_MS = 8;

/** What a dispatch took. */
export interface DispatchTime {
  op: string;
  kernel: string;
  workgroups: [number, number, number];
  ms: number;
}

/** What was done, for `stats()` and `profile()`. */
export interface Counters {
  dispatches: number;
  submits: number;
}

export interface Replaying {
  gpu: Gpu;
  plan: LivePlan;
  /** Encodes what is before the first and behind the last dispatch. */
  before: (encoder: GPUCommandEncoder) => void;
  after: (encoder: GPUCommandEncoder) => void;
  name: string;
  counters: Counters;
  signal?: AbortSignal | undefined;
}

function encodeSteps(pass: GPUComputePassEncoder, steps: readonly Step[]): void {
  let pipeline: GPUComputePipeline | undefined;
  let group: GPUBindGroup | undefined;
  for (const step of steps) {
    if (step.pipeline !== pipeline) {
      pipeline = step.pipeline;
      pass.setPipeline(pipeline);
    }
    if (step.group !== group) {
      group = step.group;
      pass.setBindGroup(0, group);
    }
    pass.dispatchWorkgroups(step.x, step.y, step.z);
  }
}

// Submits one part; resolves when the GPU has taken it without complaint.
function submitPart(replaying: Replaying, first: number, last: number): Promise<void> {
  const { gpu, plan, counters } = replaying;
  const { checked } = gpu.guard(`${replaying.name}: execute`, () => {
    const encoder = gpu.device.createCommandEncoder();
    if (first === 0) {
      replaying.before(encoder);
    }
    if (first < last) {
      const pass = encoder.beginComputePass();
      encodeSteps(pass, plan.steps.slice(first, last));
      pass.end();
    }
    if (last === plan.steps.length) {
      replaying.after(encoder);
    }
    gpu.device.queue.submit([encoder.finish()]);
  });
  counters.submits++;
  counters.dispatches += last - first;
  return checked;
}

/** All is submitted; whether the GPU took it is told later. */
export interface Replayed {
  checked: Promise<void>;
}

/** Plays all dispatches. */
export async function replay(replaying: Replaying): Promise<Replayed> {
  const { plan } = replaying;
  const total = plan.costs.reduce((sum, cost) => sum + cost, 0);
  // NaN, if something was never measured, is not fast.
  return total < 2 * PART_MS ? replayFast(replaying) : replayPaced(replaying);
}

async function replayFast(replaying: Replaying): Promise<Replayed> {
  const count = replaying.plan.steps.length;
  const checks: Promise<void>[] = [];
  let began = performance.now();
  let first = 0;
  for (let length = FIRST_PART; checks.length === 0 || first < count; length *= 2) {
    // A last part that is shorter than the one before it joins it.
    const last = first + 2 * length > count ? count : first + length;
    checks.push(submitPart(replaying, first, last));
    first = last;
    if (first < count && performance.now() - began > TURN_MS) {
      await turn();
      replaying.signal?.throwIfAborted();
      began = performance.now();
    }
  }
  return { checked: all(checks) };
}

// What is not measured yet is taken for as long as the last part's dispatches.
function nextLength(costs: Float64Array, first: number, guess: number): number {
  let ms = 0;
  let at = first;
  while (at < costs.length && !Number.isNaN(costs[at])) {
    ms += costs[at] ?? 0;
    if (ms > PART_MS && at > first) {
      return at - first;
    }
    at++;
  }
  return at > first ? at - first : guess;
}

async function replayPaced(replaying: Replaying): Promise<Replayed> {
  const { gpu, plan } = replaying;
  const count = plan.steps.length;
  const known = plan.costs.slice();
  const checks: Promise<void>[] = [];
  let guess = FIRST_PART;
  let lastDone = 0;
  let before: Promise<void> | undefined;
  let first = 0;
  do {
    const length = nextLength(known, first, guess);
    const start = first;
    const last = Math.min(first + length, count);
    const submitted = performance.now();
    checks.push(submitPart(replaying, start, last));
    const done = gpu.device.queue.onSubmittedWorkDone().then(() => {
      const now = performance.now();
      const ms = now - Math.max(submitted, lastDone);
      lastDone = now;
      plan.costs.fill(ms / Math.max(last - start, 1), start, last);
      const fitting = Math.floor((length * PART_MS) / Math.max(ms, 1));
      guess =
        ms > PART_MS ? Math.max(1, fitting) : ms < PART_MS / 2 ? 2 * guess : guess;
    });
    first = last;
    // The GPU has the last part while the next one is encoded.
    await before;
    before = done;
    await turn();
    replaying.signal?.throwIfAborted();
    gpu.check();
  } while (first < count);
  return { checked: all(checks) };
}

function all(checks: Promise<void>[]): Promise<void> {
  const checked = Promise.all(checks).then(() => undefined);
  checked.catch(() => undefined);
  return checked;
}

// Pairs of timestamps that one query set can hold.
const QUERIES = 2048;

/** Plays each dispatch by itself and times it. */
export async function replayTimed(replaying: Replaying): Promise<DispatchTime[]> {
  const { gpu, plan } = replaying;
  const times: number[] = [];
  if (gpu.device.features.has('timestamp-query')) {
    for (let first = 0; first < plan.steps.length; first += QUERIES) {
      const last = Math.min(first + QUERIES, plan.steps.length);
      times.push(...(await timedByQueries(replaying, first, last)));
    }
  } else {
    for (let first = 0; first < plan.steps.length; first++) {
      const began = performance.now();
      await submitPart(replaying, first, first + 1);
      await gpu.device.queue.onSubmittedWorkDone();
      times.push(performance.now() - began);
    }
  }
  if (plan.steps.length === 0) {
    await submitPart(replaying, 0, 0);
  }
  return plan.steps.map(({ op, kernel, x, y, z }, i) => ({
    ...{ op, kernel },
    workgroups: [x, y, z],
    ms: times[i] ?? 0,
  }));
}

async function timedByQueries(
  replaying: Replaying,
  first: number,
  last: number,
): Promise<number[]> {
  const { gpu, plan, counters } = replaying;
  const { device } = gpu;
  const count = 2 * (last - first);
  const size = 8 * count;
  const querySet = device.createQuerySet({ type: 'timestamp', count });
  const resolved = device.createBuffer({
    size,
    usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC,
  });
  const staging = device.createBuffer({
    size,
    usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
  });
  try {
    for (let at = first; at < last; at++) {
      const query = 2 * (at - first);
      const { checked } = gpu.guard(plan.steps[at]?.place ?? '', () => {
        const encoder = device.createCommandEncoder();
        if (at === 0) {
          replaying.before(encoder);
        }
        const pass = encoder.beginComputePass({
          timestampWrites: {
            querySet,
            beginningOfPassWriteIndex: query,
            endOfPassWriteIndex: query + 1,
          },
        });
        encodeSteps(pass, plan.steps.slice(at, at + 1));
        pass.end();
        if (at + 1 === plan.steps.length) {
          replaying.after(encoder);
        }
        device.queue.submit([encoder.finish()]);
      });
      counters.submits++;
      counters.dispatches++;
      await checked;
      replaying.signal?.throwIfAborted();
    }
    const encoder = device.createCommandEncoder();
    encoder.resolveQuerySet(querySet, 0, count, resolved, 0);
    encoder.copyBufferToBuffer(resolved, 0, staging, 0, size);
    device.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ);
    const stamps = new BigInt64Array(staging.getMappedRange());
    return Array.from({ length: last - first }, (_, i) => {
      const spent = (stamps[2 * i + 1] ?? 0n) - (stamps[2 * i] ?? 0n);
      return Math.max(0, Number(spent) / 1e6);
    });
  } finally {
    for (const each of [querySet, resolved, staging]) {
      each.destroy();
    }
  }
}
