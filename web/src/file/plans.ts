/**
 * The plans of one delegate as plain data, as in executorch_webgpu/portable/plans.fbs,
 * which says what everything means.
 *
 * All numbers are JavaScript's: what does not fit 53 bits is refused where it is read.
 */

/** The number of a register. */
export type Register = number;

export enum Operator {
  Add,
  Subtract,
  Multiply,
  Divide,
  Modulo,
  CeilDivide,
  Less,
  Equal,
}

export interface Instruction {
  operator: Operator;
  left: Register;
  right: Register;
}

export interface PlanSymbol {
  name: string;
  low: number;
  high: number;
  input: number;
  /** -1 for the value of an int. */
  dim: number;
  divisor: number;
  offset: number;
}

export enum Access {
  Read,
  ReadWrite,
  Uniform,
}

export interface PlanKernel {
  label: string;
  lines: number[];
  access: Access[];
  subgroups: boolean;
}

export enum Role {
  Constant,
  State,
  Input,
  Output,
  Scratch,
  Status,
}

export interface PlanBuffer {
  role: Role;
  size: number;
  key: string;
}

export enum Storage {
  F32,
  F16,
  I32,
}

/** ExecuTorch's ScalarType; only those that a delegate can have. */
export enum DType {
  Byte = 0,
  Char = 1,
  Short = 2,
  Int = 3,
  Long = 4,
  Half = 5,
  Float = 6,
  Bool = 11,
  BFloat16 = 15,
}

export interface PlanConstant {
  buffer: number;
  dataKey: string;
  dtype: DType;
  storage: Storage;
  shape: number[];
}

export interface PlanLimit {
  label: string;
  add: Register;
  count: Register;
  length: Register;
}

export interface PlanPort {
  name: string;
  isInt: boolean;
  /** -1 if nothing is copied. */
  buffer: number;
  dtype: DType;
  storage: Storage;
  shape: Register[];
  value: Register;
  limits: PlanLimit[];
  wanted: string;
}

export interface PlanDispatch {
  kernel: number;
  buffers: number[];
  ranges: Register[];
  params: Register[];
  groups: Register[];
  label: string;
  call: number;
}

export interface Guard {
  register: Register;
  low: number;
  high: number;
}

export interface PlanVariant {
  guards: Guard[];
  dispatches: number[];
  inputs: number[];
  outputs: number[];
  /** -1 if no kernel reports. */
  status: number;
}

export interface PlanProfile {
  name: string;
  f16: boolean;
  subgroups: boolean;
  maxStorageBuffers: number;
  maxBinding: number;
  maxBuffer: number;
  maxWorkgroups: number;
  maxInvocations: number;
  workgroupMemory: number;
  offsetAlign: number;
  variants: PlanVariant[];
  /** For adapters that compute on the host's processor. */
  isCpu: boolean;
}

export interface Plans {
  format: number;
  writer: string;
  symbols: PlanSymbol[];
  literals: number[];
  code: Instruction[];
  lines: string[];
  kernels: PlanKernel[];
  buffers: PlanBuffer[];
  constants: PlanConstant[];
  ports: PlanPort[];
  dispatches: PlanDispatch[];
  profiles: PlanProfile[];
}

/**
 * What a dispatch's parameters take up among those of all: each starts at a multiple of
 * 256 bytes, the largest alignment that WebGPU allows an adapter to ask for.
 */
export function paramsBytes(dispatch: PlanDispatch): number {
  return Math.ceil((4 * dispatch.params.length) / 256) * 256;
}

/** The text of a kernel, as a browser compiles it. */
export function textOf(plans: Plans, kernel: PlanKernel): string {
  const lines = kernel.lines.map((line) => plans.lines[line]);
  return (kernel.subgroups ? 'enable subgroups;\n' : '') + lines.join('\n');
}
