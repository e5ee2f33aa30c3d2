/** What is made for one set of live shapes: dispatches with their bindings and numbers. */

import { WebGPUError } from '../errors';
import {
  type DType,
  type PlanDispatch,
  type PlanPort,
  type PlanProfile,
  type Plans,
  type PlanVariant,
  paramsBytes,
  type Storage,
} from '../file/plans';
import type { Gpu } from '../gpu/device';
import type { Pipeline } from '../gpu/pipelines';
import { storedSize } from './convert';
import { chooseVariant, type LiveInput, liveRegisters } from './size_code';

export interface Step {
  pipeline: GPUComputePipeline;
  group: GPUBindGroup;
  x: number;
  y: number;
  z: number;
  op: string;
  kernel: string;
  /** The op, its call and its kernel, for messages. */
  place: string;
}

export interface Limit {
  label: string;
  add: number;
  count: number;
  length: number;
}

/** An argument of the call. */
export interface Port {
  name: string;
  isInt: boolean;
  /** Undefined if nothing is copied. */
  buffer: GPUBuffer | undefined;
  dtype: DType;
  storage: Storage;
  shape: number[];
  count: number;
  /** Of an output that is an int. */
  value: number;
  limits: Limit[];
}

export interface LivePlan {
  steps: Step[];
  /** Milliseconds that each step took, as far as is known. */
  costs: Float64Array;
  params: Uint8Array<ArrayBuffer>;
  inputs: Port[];
  outputs: Port[];
  status: GPUBuffer | undefined;
  /** Op labels by the numbers of their calls, for messages. */
  calls: Map<number, string>;
  /** Whether the GPU has taken all of its commands once. */
  hasRun: boolean;
}

/** What all live plans of a delegate are made of. */
export interface Parts {
  gpu: Gpu;
  plans: Plans;
  profile: PlanProfile;
  pipelines: ReadonlyMap<number, Pipeline>;
  buffers: ReadonlyMap<number, GPUBuffer>;
  params: GPUBuffer | undefined;
  /** Bind groups by what they bind. */
  groups: Map<string, GPUBindGroup>;
  /** Numbers of the buffers and layouts in the keys of `groups`. */
  ids: WeakMap<object, number>;
}

const MAX_ELEMENTS = 2 ** 40;
const MAX_EXTENT = 2 ** 31 - 1;

// Bind groups with ranges are as many as there are sizes.
const MAX_GROUPS = 8192;

function refuse(where: string, requirement: string, got: number): never {
  throw new WebGPUError(
    'DelegateInvalidCompatibility',
    `${where}: ${requirement}, got ${got}; the program's plans are wrong`,
  );
}

/** An element that must be there, since the plans were checked. */
export function at<T>(items: readonly T[], index: number): T {
  const item = items[index];
  if (item === undefined) {
    throw new WebGPUError('Internal', `plans: an index must be checked, got ${index}`);
  }
  return item;
}

/** Where an op is, for messages. */
export function placeOf(plans: Plans, dispatch: PlanDispatch): string {
  const kernel = at(plans.kernels, dispatch.kernel).label;
  return `${dispatch.label} (call ${dispatch.call}, kernel ${kernel})`;
}

/** The variant that serves some inputs, and all numbers for it. */
export interface FoundVariant {
  variant: PlanVariant;
  registers: readonly number[];
}

/** Throws if no variant serves the inputs. */
export function findVariant(
  { plans, profile }: Parts,
  inputs: readonly LiveInput[],
): FoundVariant {
  const first = at(profile.variants, 0);
  const registers = liveRegisters(plans, first, [...inputs]);
  return { variant: chooseVariant(plans, profile, registers), registers };
}

/** The plan for some inputs, of a variant whose kernels are compiled. */
export function makeLivePlan(
  parts: Parts,
  inputs: readonly LiveInput[],
  { variant, registers }: FoundVariant,
): { plan: LivePlan; checked: Promise<void> } {
  const { plans } = parts;
  const ports = (indices: readonly number[]): Port[] =>
    indices.map((index) => makePort(parts, at(plans.ports, index), registers));
  const made = makeSteps(parts, variant, registers);
  const plan: LivePlan = {
    ...made,
    costs: new Float64Array(made.steps.length).fill(Number.NaN),
    inputs: ports(variant.inputs),
    outputs: ports(variant.outputs),
    status: variant.status < 0 ? undefined : parts.buffers.get(variant.status),
    calls: callsOf(plans, variant),
    hasRun: false,
  };
  // What holds for the first variant's inputs must hold for this one's.
  plan.inputs.forEach((port, i) => {
    const input = inputs[i];
    if (!port.isInt && port.shape.join() !== input?.shape.join()) {
      refuse(port.name, 'must have one shape in all variants', port.count);
    }
  });
  return { plan, checked: made.checked };
}

function callsOf(plans: Plans, variant: PlanVariant): Map<number, string> {
  const calls = new Map<number, string>();
  for (const index of variant.dispatches) {
    const { call, label } = at(plans.dispatches, index);
    calls.set(call, label);
  }
  return calls;
}

// Parameters have their place by the dispatch's place in the variant, whether or not it
// is launched, so that bind groups serve all live shapes.
function makeSteps(
  parts: Parts,
  variant: PlanVariant,
  registers: readonly number[],
): Pick<LivePlan, 'steps' | 'params'> & { checked: Promise<void> } {
  const { plans } = parts;
  const dispatches = variant.dispatches.map((index) => at(plans.dispatches, index));
  const size = dispatches.reduce((sum, dispatch) => sum + paramsBytes(dispatch), 0);
  const params = new DataView(new ArrayBuffer(size));
  const steps: Step[] = [];
  const { checked } = parts.gpu.guard('bind groups', () => {
    let offset = 0;
    for (const dispatch of dispatches) {
      const step = makeStep(parts, dispatch, registers, params, offset);
      if (step !== undefined) {
        steps.push(step);
      }
      offset += paramsBytes(dispatch);
    }
  });
  return { steps, params: new Uint8Array(params.buffer), checked };
}

function makeStep(
  parts: Parts,
  dispatch: PlanDispatch,
  registers: readonly number[],
  params: DataView,
  offset: number,
): Step | undefined {
  const { plans, profile } = parts;
  const place = placeOf(plans, dispatch);
  const [x = 0, y = 0, z = 0] = dispatch.groups.map((register) => {
    const count = at(registers, register);
    if (count < 0 || count > profile.maxWorkgroups) {
      refuse(place, `workgroups must be from 0 to ${profile.maxWorkgroups}`, count);
    }
    return count;
  });
  if (x === 0 || y === 0 || z === 0) {
    return undefined;
  }
  dispatch.params.forEach((register, i) => {
    const value = at(registers, register);
    if (value < -(2 ** 31) || value >= 2 ** 32) {
      refuse(place, 'a parameter must fit 32 bits', value);
    }
    params.setUint32(offset + 4 * i, value >>> 0, true);
  });
  const bounds = dispatch.buffers.map((_, i) =>
    bound(parts, dispatch, i, registers, place),
  );
  if (dispatch.params.length > 0 && parts.params !== undefined) {
    bounds.push({ buffer: parts.params, offset, size: 4 * dispatch.params.length });
  }
  const pipeline = parts.pipelines.get(dispatch.kernel);
  if (pipeline === undefined) {
    throw new WebGPUError('Internal', `${place}: the kernel must be compiled`);
  }
  return {
    pipeline: pipeline.handle,
    group: bind(parts, pipeline.layout, bounds),
    ...{ x, y, z },
    op: dispatch.label,
    kernel: at(plans.kernels, dispatch.kernel).label,
    place,
  };
}

type Bound = Required<GPUBufferBinding>;

function bound(
  parts: Parts,
  dispatch: PlanDispatch,
  binding: number,
  registers: readonly number[],
  place: string,
): Bound {
  const { profile } = parts;
  const buffer = parts.buffers.get(at(dispatch.buffers, binding));
  if (buffer === undefined) {
    throw new WebGPUError('Internal', `${place}: buffer ${binding} must be made`);
  }
  const whole = buffer.size;
  const found = { buffer, offset: 0, size: whole };
  if (dispatch.ranges.length > 0) {
    found.offset = at(registers, at(dispatch.ranges, 2 * binding));
    found.size = at(registers, at(dispatch.ranges, 2 * binding + 1));
    const { offset, size } = found;
    if (offset < 0 || offset > whole || offset % profile.offsetAlign !== 0) {
      refuse(
        place,
        `an offset must be a multiple of ${profile.offsetAlign} in a buffer of ` +
          `${whole} bytes`,
        offset,
      );
    }
    if (size <= 0 || size % 4 !== 0 || size > whole - offset) {
      refuse(
        place,
        `a range must be a multiple of 4 in the ${whole - offset} bytes that are left`,
        size,
      );
    }
  }
  if (found.size > profile.maxBinding) {
    refuse(
      place,
      `a binding must have at most ${profile.maxBinding} bytes`,
      found.size,
    );
  }
  return found;
}

let lastId = 0;

function idOf(ids: WeakMap<object, number>, object: object): number {
  let id = ids.get(object);
  if (id === undefined) {
    lastId++;
    id = lastId;
    ids.set(object, id);
  }
  return id;
}

function bind(
  parts: Parts,
  layout: GPUBindGroupLayout,
  bounds: readonly Bound[],
): GPUBindGroup {
  const { groups, ids } = parts;
  const key = bounds.reduce(
    (text, { buffer, offset, size }) =>
      `${text} ${idOf(ids, buffer)},${offset},${size}`,
    String(idOf(ids, layout)),
  );
  let group = groups.get(key);
  if (group === undefined) {
    group = parts.gpu.device.createBindGroup({
      layout,
      entries: bounds.map((resource, binding) => ({ binding, resource })),
    });
    if (groups.size >= MAX_GROUPS) {
      groups.clear();
    }
    groups.set(key, group);
  }
  return group;
}

function makePort(parts: Parts, spec: PlanPort, registers: readonly number[]): Port {
  let count = 1;
  const shape = spec.shape.map((register) => {
    const extent = at(registers, register);
    if (extent < 0 || extent > MAX_EXTENT) {
      refuse(spec.name, 'a size must be from 0 to 2147483647', extent);
    }
    if (count > 0 && extent > MAX_ELEMENTS / count) {
      refuse(spec.name, 'elements must fit a buffer', extent);
    }
    count *= extent;
    return extent;
  });
  const buffer = spec.buffer < 0 ? undefined : parts.buffers.get(spec.buffer);
  const bytes = storedSize(spec.storage, count);
  if (buffer !== undefined && bytes > buffer.size) {
    throw new WebGPUError(
      'DelegateInvalidCompatibility',
      `replay: ${spec.name} must fit a buffer of ${buffer.size} bytes, got ${bytes}`,
    );
  }
  return {
    name: spec.name,
    isInt: spec.isInt,
    buffer,
    dtype: spec.dtype,
    storage: spec.storage,
    shape,
    count,
    value: spec.isInt ? (registers[spec.value] ?? 0) : 0,
    limits: spec.limits.map(({ label, add, count, length }) => ({
      label,
      add: at(registers, add),
      count: at(registers, count),
      length: at(registers, length),
    })),
  };
}
