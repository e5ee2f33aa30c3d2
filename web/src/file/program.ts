/**
 * An ExecuTorch program as plain data: what of program.fbs a player needs.
 *
 * A file is the flatbuffer, which is small, and behind it segments, which are read when
 * they are needed: delegates' bytes and named data, the weights.
 */

/** A part of the file, in bytes from its start. */
export interface Span {
  start: number;
  size: number;
}

export interface TensorValue {
  kind: 'tensor';
  /** ExecuTorch's ScalarType. */
  scalarType: number;
  /** The largest ones, where the shape is dynamic. */
  sizes: number[];
  dimOrder: number[];
  isDynamic: boolean;
  /** Where the elements of a constant are; undefined for what a run computes. */
  data: Span | undefined;
}

export type Value =
  | { kind: 'null' }
  | { kind: 'int'; value: number }
  | { kind: 'bool'; value: boolean }
  | { kind: 'double'; value: number }
  | { kind: 'string'; value: string }
  | { kind: 'ints'; items: number[] } // the numbers of values that are ints
  | { kind: 'doubles'; items: number[] }
  | { kind: 'bools'; items: boolean[] }
  | { kind: 'tensors'; items: number[] } // the numbers of values; -1 for none
  | TensorValue;

export type ProgramInstruction =
  | { kind: 'kernel'; operator: number; args: number[] }
  | { kind: 'delegate'; delegate: number; args: number[] }
  | { kind: 'move'; from: number; to: number }
  | { kind: 'jumpFalse'; condition: number; destination: number }
  | { kind: 'free'; value: number };

export interface Delegate {
  /** The backend's name, such as WebGPUBackend. */
  id: string;
  /** Its bytes, in the file. */
  data: Span;
}

export interface ProgramMethod {
  name: string;
  values: Value[];
  inputs: number[];
  outputs: number[];
  /** Of all chains, one after the other. */
  instructions: ProgramInstruction[];
  /** Names with overloads, such as `aten::sym_size.int`. */
  operators: string[];
  delegates: Delegate[];
}

export interface Program {
  methods: ProgramMethod[];
  /** Weights by key. */
  namedData: Map<string, Span>;
  /** Bytes of the file from the flatbuffer's start to the last segment's end. */
  size: number;
}
