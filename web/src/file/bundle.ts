/**
 * A bundled program, .bpte: a program together with calls of it and what they should
 * give, as bundled_program_schema.fbs of ExecuTorch has it.
 */

import { WebGPUError } from '../errors';
import { asData, Tensor, typeName } from '../tensor';
import { fromMemoryOrder } from './dim_order';
import { FlatBytes, FlatTable } from './flat';
import type { Span } from './program';

export const BUNDLE_IDENTIFIER = 'BP08';

const REQUIREMENT = "the bundle must follow ExecuTorch's schema";

/** A value that goes into a call or should come out of it. */
export type BundledValue = Tensor | number | boolean;

export interface BundledCase {
  method: string;
  inputs: BundledValue[];
  expected: BundledValue[];
}

/** What of a source is needed here. */
export interface Readable {
  readonly size: number | undefined;
  read(start: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
}

function refuse(got: string): never {
  throw new WebGPUError('InvalidProgram', `${REQUIREMENT}, got ${got}`);
}

/** Where the program is in a bundle, of which `head` are the first bytes. */
export async function programSpan(source: Readable, head: Uint8Array): Promise<Span> {
  const flat = new FlatBytes(head, 'InvalidProgram', REQUIREMENT);
  const root = FlatTable.root(flat, BUNDLE_IDENTIFIER);
  const field = root.find(2);
  if (field === 0) {
    refuse('no program');
  }
  const at = flat.follow(field);
  const whole = source.size ?? Number.POSITIVE_INFINITY;
  if (at + 4 > whole) {
    refuse(`a program at ${at} of ${whole} bytes`);
  }
  const count = await source.read(at, at + 4);
  const size = new DataView(count.buffer, count.byteOffset).getUint32(0, true);
  if (at + 4 + size > whole) {
    throw new WebGPUError(
      'AccessFailed',
      `the bundle must have ${at + 4 + size} bytes, got ${whole}; the file is cut ` +
        'short',
    );
  }
  return { start: at + 4, size };
}

/** The calls in a bundle, without reading the program in it. */
export async function readCases(
  source: Readable,
  program: Span,
): Promise<BundledCase[]> {
  if (source.size === undefined) {
    return refuse('a stream whose end has not come');
  }
  // What is not written is no memory.
  const bytes = new Uint8Array(source.size);
  const end = program.start + program.size;
  for (const [first, last] of [
    [0, program.start],
    [end, source.size],
  ] as const) {
    if (first < last) {
      bytes.set(await source.read(first, last), first);
    }
  }
  const flat = new FlatBytes(bytes, 'InvalidProgram', REQUIREMENT);
  const root = FlatTable.root(flat, BUNDLE_IDENTIFIER);
  return root
    .tables(1, (suite) => {
      const method = suite.text(0);
      return suite.tables(1, (each) => ({
        method,
        inputs: each.tables(0, readValue),
        expected: each.tables(1, readValue),
      }));
    })
    .flat();
}

function readValue(table: FlatTable): BundledValue {
  const value = table.table(1);
  if (value === undefined) {
    return refuse('a value without content');
  }
  switch (table.u8(0)) {
    case 1:
      return readTensor(value);
    case 2:
      return Number(value.i64(0));
    case 3:
      return value.flag(0);
    case 4:
      return value.f64(0);
    default:
      return refuse(`a value of kind ${table.u8(0)}`);
  }
}

function readTensor(table: FlatTable): Tensor {
  const type = typeName(table.i8(0));
  const dims = table.i32s(1);
  if (type === undefined) {
    return refuse(`a tensor of scalar type ${table.i8(0)}`);
  }
  const { at, count } = table.vector(2, 1);
  const data = asData(type, new Uint8Array(table.bytes.bytes.slice(at, at + count)));
  return new Tensor(type, fromMemoryOrder(data, dims, table.bytesOf(3)), dims);
}
