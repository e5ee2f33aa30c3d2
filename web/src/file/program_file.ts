/**
 * The bytes of a .pte to a `Program`, as program.fbs of ExecuTorch has it.
 *
 * A file may be anybody's: every offset, count and number that refers to something is
 * compared with what is there before it leaves here.
 */

import { WebGPUError } from '../errors';
import { scalarSize } from '../player/convert';
import { FlatBytes, FlatTable, type Wide } from './flat';
import type { DType } from './plans';
import type {
  Delegate,
  Program,
  ProgramInstruction,
  ProgramMethod,
  Span,
  TensorValue,
  Value,
} from './program';

/** So many bytes of a file tell where the rest of a program is. */
export const HEADER_BYTES = 64;

const REQUIREMENT = "the program must follow ExecuTorch's schema";
const IDENTIFIER = 'ET12';
const MAX_FLATBUFFER = 2 ** 28;
const MAX_VALUES = 2 ** 24;
const MAX_RANK = 16;

function refuse(got: string): never {
  throw new WebGPUError('InvalidProgram', `${REQUIREMENT}, got ${got}`);
}

/** Where the parts of a program are, in bytes from its start. */
export interface ProgramHeader {
  /** Of the flatbuffer. */
  size: number;
  segments: number;
}

/** The four characters that say what a file is; '' if it is too short. */
export function identifierOf(head: Uint8Array): string {
  return String.fromCharCode(...head.subarray(4, 8));
}

/**
 * Reads the header, which is behind the first eight bytes of every program that has
 * segments.
 * @param most - The bytes that there are.
 */
export function readHeader(head: Uint8Array, most: number): ProgramHeader {
  const identifier = identifierOf(head);
  if (identifier !== IDENTIFIER) {
    throw new WebGPUError(
      'InvalidProgram',
      `the file must be a program of ExecuTorch with ${IDENTIFIER} at byte 4, got ` +
        `${JSON.stringify(identifier)}`,
    );
  }
  const bytes = new FlatBytes(head, 'InvalidProgram', REQUIREMENT);
  // Old programs have all inside.
  const hasHeader =
    head.byteLength >= 32 && String.fromCharCode(...head.subarray(8, 12)) === 'eh00';
  if (!hasHeader) {
    return { size: most, segments: most };
  }
  const header = {
    size: safe('a size', bytes.u64(16)),
    segments: safe('a segment', bytes.u64(24)),
  };
  if (header.size > Math.min(most, MAX_FLATBUFFER) || header.segments > most) {
    throw new WebGPUError(
      'AccessFailed',
      `the program must have ${Math.max(header.size, header.segments)} bytes, got ` +
        `${most}; the file is cut short`,
    );
  }
  return header;
}

function safe(what: string, value: Wide): number {
  return typeof value === 'bigint' ? refuse(`${what} of ${value}`) : value;
}

function index(what: string, value: number, count: number): number {
  return value >= 0 && value < count ? value : refuse(`${what} ${value} of ${count}`);
}

/**
 * The program whose flatbuffer is `bytes`.
 * @param base - Where the program starts in its file.
 * @param most - The bytes that the file has from there on.
 */
export function readProgram(
  bytes: Uint8Array,
  header: ProgramHeader,
  base: number,
  most: number,
): Program {
  const flat = new FlatBytes(bytes, 'InvalidProgram', REQUIREMENT);
  return new ProgramReader(FlatTable.root(flat, IDENTIFIER), header, base, most).read();
}

/** Where the data of tensors is in a segment. */
interface Offsets {
  segment: number;
  offsets: Wide[];
}

function readOffsets(table: FlatTable): Offsets {
  return { segment: table.u32(0), offsets: table.u64s(1) };
}

class ProgramReader {
  readonly #root: FlatTable;
  readonly #base: number;
  readonly #segments: Span[];
  readonly #inlineDelegates: Span[];
  readonly #inlineConstants: Span[];
  readonly #constants: Offsets | undefined;
  readonly #states: Offsets[];
  readonly #end: number;

  constructor(root: FlatTable, header: ProgramHeader, base: number, most: number) {
    this.#root = root;
    this.#base = base;
    this.#segments = root.tables(4, (table) => ({
      start: base + header.segments + safe('an offset', table.u64(0)),
      size: safe('a size', table.u64(1)),
    }));
    this.#end = this.#segments.reduce(
      (end, { start, size }) => Math.max(end, start + size),
      base + header.size,
    );
    if (this.#end > base + most) {
      throw new WebGPUError(
        'AccessFailed',
        `the program must have ${this.#end - base} bytes, got ${most}; the file is cut ` +
          'short',
      );
    }
    this.#inlineDelegates = root.tables(3, (table) => this.#inline(table));
    this.#inlineConstants = root.tables(2, (table) => this.#inline(table));
    const constants = root.table(5);
    this.#constants = constants && readOffsets(constants);
    this.#states = root.tables(6, readOffsets);
  }

  read(): Program {
    const root = this.#root;
    const methods = root.tables(1, (table) => this.#method(table));
    const namedData = new Map<string, Span>();
    for (const [key, segment] of root.tables(7, (table): [string, number] => [
      table.text(0),
      table.u32(1),
    ])) {
      namedData.set(key, this.#segment(segment));
    }
    return { methods, namedData, size: this.#end - this.#base };
  }

  #inline(table: FlatTable): Span {
    const { at, count } = table.vector(0, 1);
    return { start: this.#base + at, size: count };
  }

  #segment(number: number): Span {
    return this.#segments[index('segment', number, this.#segments.length)]!;
  }

  #method(table: FlatTable): ProgramMethod {
    const name = table.text(0);
    const values = table.tables(2, (each) => this.#value(each));
    if (values.length > MAX_VALUES) {
      refuse(`${values.length} values`);
    }
    for (const value of values) {
      checkItems(value, values);
    }
    const delegates = table.tables(7, (each) => this.#delegate(each));
    const operators = table.tables(6, (each) => {
      const overload = each.text(1);
      return overload === '' ? each.text(0) : `${each.text(0)}.${overload}`;
    });
    const counts = {
      values: values.length,
      operators: operators.length,
      delegates: delegates.length,
    };
    const numbers = (field: number): number[] =>
      table.i32s(field).map((value) => index('value', value, values.length));
    return {
      ...{ name, values, operators, delegates },
      inputs: numbers(3),
      outputs: numbers(4),
      instructions: readChains(table, counts),
    };
  }

  #delegate(table: FlatTable): Delegate {
    const place = table.table(1);
    const number = place?.u32(1) ?? 0;
    const all = this.#inlineDelegates;
    const data =
      place?.u8(0) === 1 // in a segment
        ? this.#segment(number)
        : all[index("a delegate's data", number, all.length)]!;
    return { id: table.text(0), data };
  }

  #value(table: FlatTable): Value {
    const kind = table.u8(0);
    const value = table.table(1);
    if (value === undefined) {
      return kind <= 1 ? { kind: 'null' } : refuse('a value without content');
    }
    switch (kind) {
      case 0:
      case 1:
        return { kind: 'null' };
      case 2:
        // What has more than 53 bits is an end that nothing reaches.
        return { kind: 'int', value: Number(value.i64(0)) };
      case 3:
        return { kind: 'bool', value: value.flag(0) };
      case 4:
        return { kind: 'double', value: value.f64(0) };
      case 5:
        return this.#tensor(value);
      case 6:
        return { kind: 'string', value: value.text(0) };
      case 7:
        return { kind: 'ints', items: value.i64s(0).map(Number) };
      case 8: {
        const items = value.elements(0, 8, (at) => value.bytes.f64(at));
        return { kind: 'doubles', items };
      }
      case 9:
        return { kind: 'bools', items: value.bytesOf(0).map((each) => each !== 0) };
      case 10:
      case 11:
        return { kind: 'tensors', items: value.i32s(0) };
      default:
        return refuse(`a value of kind ${kind}`);
    }
  }

  #tensor(table: FlatTable): TensorValue {
    const sizes = table.i32s(2);
    const dimOrder = table.bytesOf(3);
    const isOrder = new Set(dimOrder.filter((dim) => dim < sizes.length)).size;
    if (
      sizes.length > MAX_RANK ||
      dimOrder.length !== sizes.length ||
      isOrder !== sizes.length ||
      sizes.some((extent) => extent < 0)
    ) {
      refuse(`a tensor of sizes [${sizes}] in order [${dimOrder}]`);
    }
    if (table.i32(1) !== 0) {
      refuse(`a storage offset of ${table.i32(1)}`);
    }
    const scalarType = table.i8(0);
    const count = sizes.reduce((product, extent) => product * extent, 1);
    return {
      ...{ kind: 'tensor', scalarType, sizes, dimOrder },
      isDynamic: table.u8(8) !== 0,
      data: this.#data(table, count * scalarSize(scalarType as DType)),
    };
  }

  // Where a tensor's elements are, if it has any in the file.
  #data(table: FlatTable, size: number): Span | undefined {
    const number = table.u32(5);
    const more = table.table(9);
    if (more !== undefined && more.u8(2) === 1) {
      throw new WebGPUError(
        'NotSupported',
        `the weights must be in the program's own file in a browser, got ` +
          `'${more.text(1)}' in another; export without external weights`,
      );
    }
    if (number === 0) {
      return undefined;
    }
    // A tensor that has memory and data starts with it.
    const isState = table.table(6) !== undefined;
    const all = isState ? this.#states[Number(more?.u64(0) ?? 0)] : this.#constants;
    if (all === undefined || all.offsets.length === 0) {
      const inline = this.#inlineConstants;
      return checkSize(inline[index('a constant', number, inline.length)]!, size);
    }
    const segment = this.#segment(all.segment);
    const { offsets } = all;
    const offset = safe(
      'an offset',
      offsets[index('a constant', number, offsets.length)]!,
    );
    const rest = { start: segment.start + offset, size: segment.size - offset };
    return { ...checkSize(rest, size), size };
  }
}

function checkSize(span: Span, size: number): Span {
  return span.size >= size
    ? span
    : refuse(`${span.size} bytes for a tensor of ${size}`);
}

function checkItems(value: Value, values: readonly Value[]): void {
  if (value.kind === 'ints') {
    for (const item of value.items) {
      const { kind } = values[index('value', item, values.length)]!;
      if (kind !== 'int') {
        refuse(`a list of ints with a value that is ${kind}`);
      }
    }
  }
}

interface Counts {
  values: number;
  operators: number;
  delegates: number;
}

function readChains(table: FlatTable, counts: Counts): ProgramInstruction[] {
  const found: ProgramInstruction[] = [];
  for (const chain of table.tables(5, (each) => each)) {
    const first = found.length;
    found.push(
      ...chain.tables(2, (each) => {
        const args = each.table(1);
        return args === undefined
          ? refuse('an instruction without content')
          : readInstruction(each.u8(0), args, counts, first);
      }),
    );
    for (const instruction of found.slice(first)) {
      if (instruction.kind === 'jumpFalse') {
        index('instruction', instruction.destination, found.length + 1);
      }
    }
  }
  return found;
}

function readInstruction(
  kind: number,
  table: FlatTable,
  counts: Counts,
  first: number,
): ProgramInstruction {
  const value = (field: number): number =>
    index('value', table.i32(field), counts.values);
  const args = (): number[] =>
    table.i32s(1).map((number) => index('value', number, counts.values));
  switch (kind) {
    case 1: {
      const operator = index('operator', table.i32(0), counts.operators);
      return { kind: 'kernel', operator, args: args() };
    }
    case 2: {
      const delegate = index('delegate', table.i32(0), counts.delegates);
      return { kind: 'delegate', delegate, args: args() };
    }
    case 3:
      return { kind: 'move', from: value(0), to: value(1) };
    case 4:
      return {
        ...{ kind: 'jumpFalse', condition: value(0) },
        destination: first + index('instruction', table.i32(1), 2 ** 31),
      };
    case 5:
      return { kind: 'free', value: value(0) };
    default:
      return refuse(`an instruction of kind ${kind}`);
  }
}
