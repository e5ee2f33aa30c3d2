/** One delegate of a program with plans: its GPU objects, and its calls. */

import { WebGPUError } from '../errors';
import {
  type PlanBuffer,
  type PlanConstant,
  type PlanProfile,
  type Plans,
  paramsBytes,
  Role,
} from '../file/plans';
import { BufferPlace, STORAGE_NAMES } from '../gpu/buffer_place';
import type { Gpu, Memory } from '../gpu/device';
import type { Pipeline } from '../gpu/pipelines';
import type { Weights } from '../gpu/upload';
import type { Callable, RunOptions } from '../method';
import { kindOf, type RunValue } from '../scalar_kernels';
import { asData, Tensor, typeInfo, typeName } from '../tensor';
import { fromStorage, isSameBytes, storedSize, toStorage } from './convert';
import { Kernels } from './kernels';
import {
  at,
  findVariant,
  type LivePlan,
  makeLivePlan,
  type Parts,
  type Port,
} from './live_plan';
import { type Counters, type DispatchTime, replay, replayTimed } from './replay';
import { describeReport } from './report';

/** How a call is played, beside what any method's run is asked. */
export interface PlayOptions extends RunOptions {
  /** Where the times of dispatches are added, if they are wanted. */
  times?: DispatchTime[];
}

// Sets of live shapes that are kept.
const PLANS_KEPT = 64;
const STATUS_BYTES = 16;
// Outputs of at most these bytes are read together with the status, so that `data()`
// does not have to wait for the GPU once more.
const PREFETCH_BYTES = 1 << 20;

const ROLES = ['constant', 'state', 'input', 'output', 'scratch', 'status'];

type Feed = Uint8Array<ArrayBuffer> | BufferPlace | undefined;

/** What a result is copied to. */
interface Fetch {
  port: Port;
  place: BufferPlace;
  /** Where in the staging buffer it is, too. */
  staged: number | undefined;
}

function refuse(text: string): never {
  throw new WebGPUError('InvalidArgument', text);
}

export class Player implements Callable {
  readonly inputs: number;
  readonly outputs: number;
  readonly #name: string;
  readonly #gpu: Gpu;
  readonly #memory: Memory;
  readonly #parts: Parts;
  readonly #counters: Counters;
  readonly kernels: Kernels;
  readonly #buffers = new Map<number, GPUBuffer>();
  // States with the buffers that have their content at load, if it is not zeros.
  readonly #states = new Map<GPUBuffer, GPUBuffer | undefined>();
  readonly #plans = new Map<string, LivePlan>();
  readonly #keyInts: readonly boolean[];
  #params: GPUBuffer | undefined;
  #paramsOf: LivePlan | undefined;
  #staging: GPUBuffer | undefined;
  #isTouched = false;
  // The ends of the last calls, so that no more than two are under way.
  #ends: Promise<void>[] = [];

  constructor(
    name: string,
    plans: Plans,
    profile: PlanProfile,
    memory: Memory,
    counters: Counters,
  ) {
    this.#name = name;
    this.#gpu = memory.gpu;
    this.#memory = memory;
    this.#counters = counters;
    const variant = at(profile.variants, 0);
    this.inputs = variant.inputs.length;
    this.outputs = variant.outputs.length;
    this.#keyInts = variant.inputs.map((_, input) =>
      plans.symbols.some((symbol) => symbol.dim === -1 && symbol.input === input),
    );
    this.kernels = new Kernels(this.#gpu, plans, profile);
    this.#parts = {
      ...{ gpu: this.#gpu, plans, profile, params: undefined },
      pipelines: this.kernels.pipelines,
      buffers: this.#buffers,
      groups: new Map(),
      ids: new WeakMap(),
    };
  }

  get profile(): PlanProfile {
    return this.#parts.profile;
  }

  /** Whether calls leave something behind. */
  get hasStates(): boolean {
    return this.#states.size > 0;
  }

  /** Whether calls have left something behind. */
  get isTouched(): boolean {
    return this.#isTouched;
  }

  get pipelines(): Iterable<Pipeline> {
    return this.kernels.pipelines.values();
  }

  /** Makes all buffers; those of weights are filled by `weights`, later. */
  async makeBuffers(weights: Weights): Promise<void> {
    const { plans } = this.#parts;
    const contents = new Map(plans.constants.map((each) => [each.buffer, each]));
    const states = new Map<string, GPUBuffer>();
    const { used, params } = usedBuffers(plans, this.profile);
    const { checked } = this.#gpu.guard(`${this.#name}: buffers`, () => {
      for (const index of used) {
        const spec = at(plans.buffers, index);
        const content = contents.get(index);
        const made = this.#makeBuffer(spec, content, states, weights);
        this.#buffers.set(index, made);
      }
      if (params > 0) {
        const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
        this.#params = this.#memory.create('params', params, usage);
        this.#parts.params = this.#params;
      }
    });
    await checked;
  }

  #makeBuffer(
    spec: PlanBuffer,
    content: PlanConstant | undefined,
    states: Map<string, GPUBuffer>,
    weights: Weights,
  ): GPUBuffer {
    const filled =
      content === undefined || content.dataKey === '' ? undefined : content;
    if (spec.role === Role.Constant && filled !== undefined) {
      return weights.buffer(spec, filled);
    }
    // States of one key are one, whichever profile's buffer it is.
    const known = spec.role === Role.State ? states.get(spec.key) : undefined;
    if (known !== undefined) {
      if (known.size !== spec.size) {
        throw new WebGPUError(
          'DelegateInvalidCompatibility',
          `state ${spec.key}: must have ${known.size} bytes, got ${spec.size}; the ` +
            "program's plans are wrong",
        );
      }
      return known;
    }
    const usage =
      GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const label = `${ROLES[spec.role]} ${spec.key}`;
    const made = this.#memory.create(label, spec.size, usage);
    if (spec.role === Role.State) {
      states.set(spec.key, made);
      this.#states.set(made, filled && weights.buffer(spec, filled));
    }
    return made;
  }

  /** Gives the states their content at load. */
  async resetState(): Promise<void> {
    const { checked } = this.#gpu.guard(`${this.#name}: reset`, () => {
      const encoder = this.#gpu.device.createCommandEncoder();
      for (const [state, content] of this.#states) {
        if (content === undefined) {
          encoder.clearBuffer(state);
        } else {
          encoder.copyBufferToBuffer(content, 0, state, 0, state.size);
        }
      }
      this.#gpu.device.queue.submit([encoder.finish()]);
    });
    await checked;
    this.#isTouched = false;
  }

  async call(args: RunValue[], options: PlayOptions): Promise<RunValue[]> {
    const plan = await this.#prepare(args);
    checkInputs(plan, args);
    const feeds = await Promise.all(
      plan.inputs.map((port, i) => this.#feed(port, args[i])),
    );
    if (this.#ends.length > 1) {
      await this.#ends.shift();
    }
    options.signal?.throwIfAborted();
    this.#gpu.check();
    const fetches: Fetch[] = [];
    try {
      const { checked } = await this.#play(plan, feeds, fetches, options);
      if (plan.status !== undefined) {
        await this.#settle(plan, fetches, checked);
      } else if (!plan.hasRun) {
        await checked;
      }
      plan.hasRun = true;
    } catch (error) {
      for (const { place } of fetches) {
        place.release();
      }
      throw error;
    }
    const places = new Map(fetches.map(({ port, place }) => [port, place]));
    return plan.outputs.map((port) => result(port, places.get(port)));
  }

  async #prepare(args: RunValue[]): Promise<LivePlan> {
    this.#gpu.check();
    const key = args
      .map((arg, i) => {
        if (arg.kind === 'tensor') {
          return `[${arg.tensor.dims.join()}]`;
        }
        if (arg.kind !== 'int') {
          refuse(`input ${i} must be a tensor or an int`);
        }
        return this.#keyInts[i] ? arg.value : 'i';
      })
      .join();
    let plan = this.#plans.get(key);
    // The last one in the map is the most recently played one.
    this.#plans.delete(key);
    if (plan === undefined) {
      const inputs = args.map((arg) =>
        arg.kind === 'tensor'
          ? { isInt: false, value: 0, shape: [...arg.tensor.dims] }
          : { isInt: true, value: arg.kind === 'int' ? arg.value : 0, shape: [] },
      );
      const found = findVariant(this.#parts, inputs);
      await this.kernels.prepare(found.variant);
      const made = makeLivePlan(this.#parts, inputs, found);
      plan = made.plan;
      await made.checked;
      const [oldest] = this.#plans.keys();
      if (this.#plans.size >= PLANS_KEPT && oldest !== undefined) {
        this.#plans.delete(oldest);
      }
    }
    this.#plans.set(key, plan);
    return plan;
  }

  // The elements of an input as its buffer holds them, or where they are on this GPU.
  async #feed(port: Port, arg: RunValue | undefined): Promise<Feed> {
    if (port.buffer === undefined || port.count === 0) {
      return undefined;
    }
    if (arg?.kind === 'int') {
      if (arg.value !== (arg.value | 0)) {
        refuse(`${port.name}: int64 values must fit int32, got ${arg.value} at 0`);
      }
      return new Uint8Array(Int32Array.of(arg.value).buffer);
    }
    if (arg?.kind !== 'tensor') {
      return undefined;
    }
    const place = arg.tensor.place?.gpu;
    const isHere =
      place?.device === this.#gpu.device &&
      place.storage === STORAGE_NAMES[port.storage];
    if (isHere && arg.tensor.host === undefined) {
      return place;
    }
    const data = await arg.tensor.data({ keep: true });
    return staged(port, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  }

  async #play(
    plan: LivePlan,
    feeds: readonly Feed[],
    fetches: Fetch[],
    options: PlayOptions,
  ): Promise<{ checked: Promise<void> }> {
    const { device } = this.#gpu;
    const ready = this.#gpu.guard(`${this.#name}: results`, () =>
      this.#makeFetches(plan, fetches),
    );
    const written = this.#gpu.guard(`${this.#name}: inputs`, () =>
      this.#write(plan, feeds),
    );
    this.#isTouched ||= this.hasStates;
    const replaying = {
      ...{ gpu: this.#gpu, plan, name: this.#name, counters: this.#counters },
      // Half a call would leave half a state behind.
      signal: this.hasStates ? undefined : options.signal,
      before: (encoder: GPUCommandEncoder) => this.#before(encoder, plan, feeds),
      after: (encoder: GPUCommandEncoder) => this.#after(encoder, plan, fetches),
    };
    let played = Promise.resolve();
    if (options.times === undefined) {
      played = (await replay(replaying)).checked;
    } else {
      options.times.push(...(await replayTimed(replaying)));
    }
    this.#ends.push(device.queue.onSubmittedWorkDone().catch(() => undefined));
    // An input may be the result of a call that has not been checked yet.
    const filled = feeds.map((feed) =>
      feed instanceof BufferPlace ? feed.filled : null,
    );
    const checked = Promise.all([
      ready.checked,
      written.checked,
      played,
      ...filled,
    ]).then(() => undefined);
    checked.catch(() => undefined);
    for (const { place } of fetches) {
      place.filled = checked;
    }
    return { checked };
  }

  // Each result has a buffer of its own, so that it outlives the next call.
  #makeFetches(plan: LivePlan, fetches: Fetch[]): void {
    const usage =
      GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    let end = STATUS_BYTES;
    for (const port of plan.outputs) {
      if (port.buffer === undefined || port.count === 0) {
        continue;
      }
      const size = storedSize(port.storage, port.count);
      const buffer = this.#memory.create(`result ${port.name}`, size, usage);
      const place = new BufferPlace({
        ...{ device: this.#gpu.device, buffer },
        storage: STORAGE_NAMES[port.storage],
        free: () => this.#memory.destroy(buffer),
      });
      const isStaged = plan.status !== undefined && end + size <= PREFETCH_BYTES;
      fetches.push({ port, place, staged: isStaged ? end : undefined });
      end += isStaged ? size : 0;
    }
    if (plan.status !== undefined && (this.#staging?.size ?? 0) < end) {
      if (this.#staging !== undefined) {
        this.#memory.destroy(this.#staging);
      }
      const mapped = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
      this.#staging = this.#memory.create('staging', end, mapped);
    }
  }

  #write(plan: LivePlan, feeds: readonly Feed[]): void {
    const { queue } = this.#gpu.device;
    plan.inputs.forEach(({ buffer }, i) => {
      const feed = feeds[i];
      if (buffer !== undefined && feed instanceof Uint8Array) {
        queue.writeBuffer(buffer, 0, feed);
      }
    });
    if (this.#params !== undefined && this.#paramsOf !== plan) {
      queue.writeBuffer(this.#params, 0, plan.params);
      this.#paramsOf = plan;
    }
  }

  #before(encoder: GPUCommandEncoder, plan: LivePlan, feeds: readonly Feed[]): void {
    if (plan.status !== undefined) {
      encoder.clearBuffer(plan.status, 0, STATUS_BYTES);
    }
    plan.inputs.forEach(({ buffer, storage, count }, i) => {
      const feed = feeds[i];
      if (buffer !== undefined && feed instanceof BufferPlace) {
        const size = storedSize(storage, count);
        encoder.copyBufferToBuffer(feed.buffer, 0, buffer, 0, size);
      }
    });
  }

  #after(encoder: GPUCommandEncoder, plan: LivePlan, fetches: readonly Fetch[]): void {
    const staging = this.#staging;
    if (plan.status !== undefined && staging !== undefined) {
      encoder.copyBufferToBuffer(plan.status, 0, staging, 0, STATUS_BYTES);
    }
    for (const { port, place, staged } of fetches) {
      if (port.buffer === undefined) {
        continue;
      }
      const { size } = place.buffer;
      encoder.copyBufferToBuffer(port.buffer, 0, place.buffer, 0, size);
      if (staged !== undefined && staging !== undefined) {
        encoder.copyBufferToBuffer(port.buffer, 0, staging, staged, size);
      }
    }
  }

  // Waits for the status, which must be good before anybody sees a result.
  async #settle(
    plan: LivePlan,
    fetches: readonly Fetch[],
    checked: Promise<void>,
  ): Promise<void> {
    const staging = this.#staging;
    if (staging === undefined) {
      return;
    }
    try {
      await staging.mapAsync(GPUMapMode.READ);
    } catch (error) {
      await checked;
      await this.#gpu.checkSoon();
      throw error;
    }
    try {
      await checked;
      const mapped = staging.getMappedRange();
      checkStatus(plan, new Int32Array(mapped, 0, 4));
      for (const { port, place, staged } of fetches) {
        const type = typeName(port.dtype);
        if (staged !== undefined && type !== undefined) {
          const source = new Uint8Array(mapped, staged, place.buffer.size);
          const elements = new Uint8Array(port.count * typeInfo(type).bytes);
          fromStorage(port.dtype, port.storage, source, elements, port.count);
          place.prefetched = asData(type, elements);
        }
      }
    } finally {
      staging.unmap();
    }
  }
}

function usedBuffers(
  plans: Plans,
  profile: PlanProfile,
): { used: Set<number>; params: number } {
  const used = new Set<number>();
  let params = 0;
  for (const variant of profile.variants) {
    let end = 0;
    for (const index of variant.dispatches) {
      const dispatch = at(plans.dispatches, index);
      dispatch.buffers.forEach((buffer) => {
        used.add(buffer);
      });
      end += paramsBytes(dispatch);
    }
    params = Math.max(params, end);
    const ports = [...variant.inputs, ...variant.outputs];
    for (const buffer of [
      variant.status,
      ...ports.map((port) => at(plans.ports, port).buffer),
    ]) {
      if (buffer >= 0) {
        used.add(buffer);
      }
    }
  }
  return { used, params };
}

function checkLimits(port: Port, value: number): void {
  if (value !== (value | 0)) {
    return; // refused where it is converted
  }
  for (const { label, add, count, length } of port.limits) {
    const first = value + add;
    if (first < 0 || first > length - count) {
      const bad = first < 0 ? first : Math.max(first, length);
      refuse(`${label}: index must be in [0, ${length}), got ${bad}`);
    }
  }
}

function checkInputs(plan: LivePlan, args: readonly RunValue[]): void {
  plan.inputs.forEach((port, i) => {
    const arg = args[i];
    const wanted = port.isInt ? 'int' : 'tensor';
    if (arg?.kind !== wanted) {
      const what = port.isInt ? 'an int' : 'a tensor';
      refuse(`${port.name}: input must be ${what}, got ${kindOf(arg)}`);
    }
    if (arg.kind === 'int') {
      checkLimits(port, arg.value);
    } else if (arg.kind === 'tensor' && arg.tensor.type !== typeName(port.dtype)) {
      refuse(
        `${port.name}: input must have type ${typeName(port.dtype)}, got ` +
          arg.tensor.type,
      );
    }
  });
}

function staged(port: Port, bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  if (isSameBytes(port.dtype, port.storage) && bytes.byteLength % 4 === 0) {
    return bytes;
  }
  const made = new Uint8Array(storedSize(port.storage, port.count));
  const done = toStorage(port.dtype, port.storage, bytes, made, port.count);
  if (done !== port.count) {
    const value = new DataView(bytes.buffer, bytes.byteOffset).getBigInt64(
      8 * done,
      true,
    );
    refuse(`${port.name}: int64 values must fit int32, got ${value} at ${done}`);
  }
  return made;
}

function checkStatus(plan: LivePlan, status: Int32Array): void {
  const report = describeReport(status);
  if (report !== '') {
    const call = status[1] ?? 0;
    refuse(`${plan.calls.get(call) ?? `call ${call}`}: ${report}`);
  }
}

function result(port: Port, place: BufferPlace | undefined): RunValue {
  if (port.isInt) {
    return { kind: 'int', value: port.value };
  }
  const type = typeName(port.dtype);
  if (type === undefined) {
    throw new WebGPUError('Internal', `${port.name}: its type must be known`);
  }
  const tensor =
    place === undefined
      ? new Tensor(type, new Array(port.count).fill(0), port.shape)
      : Tensor.placed(type, place, port.shape);
  return { kind: 'tensor', tensor };
}
