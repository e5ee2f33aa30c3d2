/**
 * A reader of flatbuffers from files that may be anybody's.
 *
 * Every access is compared with the bytes, and no more items are visited than there are
 * bytes: offsets may point at one subtree from many places, and would make a small file
 * a large one. What is wrong throws. Fields are numbered as in the schema.
 */

import { type Code, WebGPUError } from '../errors';

/** An int64 or uint64: a bigint where it has more than 53 bits. */
export type Wide = number | bigint;

const SAFE = BigInt(2 ** 53);

function wide(value: bigint): Wide {
  return value >= -SAFE && value <= SAFE ? Number(value) : value;
}

// A byte order mark is a character as any other.
const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** The bytes, and how many items of them may still be visited. */
export class FlatBytes {
  readonly view: DataView;
  #left: number;

  /**
   * @param bytes - A flatbuffer.
   * @param code - Of the errors.
   * @param requirement - What the bytes are and must do, for the errors.
   */
  constructor(
    readonly bytes: Uint8Array,
    private readonly code: Code,
    private readonly requirement: string,
  ) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#left = bytes.byteLength;
  }

  refuse(got: string): never {
    throw new WebGPUError(this.code, `${this.requirement}, got ${got}`);
  }

  /** Returns `at` if `count` bytes are there. */
  require(at: number, count: number): number {
    if (!(at >= 0 && at + count <= this.bytes.byteLength)) {
      // One before the first byte is shown as the unsigned number that it is in C++.
      const place = BigInt.asUintN(64, BigInt(at));
      this.refuse(`${count} bytes at ${place} of ${this.bytes.byteLength}`);
    }
    return at;
  }

  /** Counts items that are about to be visited. */
  visit(items: number): void {
    if (items > this.#left) {
      this.refuse(`more items than its ${this.bytes.byteLength} bytes`);
    }
    this.#left -= items;
  }

  u8(at: number): number {
    return this.view.getUint8(this.require(at, 1));
  }

  i8(at: number): number {
    return this.view.getInt8(this.require(at, 1));
  }

  u16(at: number): number {
    return this.view.getUint16(this.require(at, 2), true);
  }

  u32(at: number): number {
    return this.view.getUint32(this.require(at, 4), true);
  }

  i32(at: number): number {
    return this.view.getInt32(this.require(at, 4), true);
  }

  u64(at: number): Wide {
    return wide(this.view.getBigUint64(this.require(at, 8), true));
  }

  i64(at: number): Wide {
    return wide(this.view.getBigInt64(this.require(at, 8), true));
  }

  f64(at: number): number {
    return this.view.getFloat64(this.require(at, 8), true);
  }

  /** Where the object is that an offset at `at` refers to. */
  follow(at: number): number {
    return at + this.u32(at);
  }

  /** The text at `at`, which is UTF-8. */
  text(at: number): string {
    const length = this.u32(at);
    this.require(at + 4, length);
    this.visit(length);
    try {
      return UTF8.decode(this.bytes.subarray(at + 4, at + 4 + length));
    } catch {
      return this.refuse(`a text that is not UTF-8 at ${at}`);
    }
  }
}

/** A table at a place in the bytes. */
export class FlatTable {
  readonly #vtable: number;
  readonly #vtableSize: number;

  constructor(
    readonly bytes: FlatBytes,
    private readonly at: number,
  ) {
    this.#vtable = at - bytes.i32(at);
    this.#vtableSize = bytes.u16(this.#vtable);
    bytes.require(this.#vtable, this.#vtableSize);
    bytes.visit(1);
  }

  /** The root; throws unless the file has the four characters of `identifier`. */
  static root(bytes: FlatBytes, identifier: string): FlatTable {
    const at = bytes.require(4, 4);
    const found = String.fromCharCode(...bytes.bytes.subarray(at, at + 4));
    if (found !== identifier) {
      bytes.refuse(`no ${identifier}`);
    }
    return new FlatTable(bytes, bytes.follow(0));
  }

  /** Where a field is; 0 if it is absent. */
  find(field: number): number {
    const entry = 4 + 2 * field;
    if (entry + 2 > this.#vtableSize) {
      return 0;
    }
    const offset = this.bytes.u16(this.#vtable + entry);
    return offset === 0 ? 0 : this.at + offset;
  }

  u8(field: number, fallback = 0): number {
    const at = this.find(field);
    return at === 0 ? fallback : this.bytes.u8(at);
  }

  i8(field: number, fallback = 0): number {
    const at = this.find(field);
    return at === 0 ? fallback : this.bytes.i8(at);
  }

  u32(field: number, fallback = 0): number {
    const at = this.find(field);
    return at === 0 ? fallback : this.bytes.u32(at);
  }

  i32(field: number, fallback = 0): number {
    const at = this.find(field);
    return at === 0 ? fallback : this.bytes.i32(at);
  }

  u64(field: number, fallback = 0): Wide {
    const at = this.find(field);
    return at === 0 ? fallback : this.bytes.u64(at);
  }

  i64(field: number, fallback = 0): Wide {
    const at = this.find(field);
    return at === 0 ? fallback : this.bytes.i64(at);
  }

  f64(field: number, fallback = 0): number {
    const at = this.find(field);
    return at === 0 ? fallback : this.bytes.f64(at);
  }

  flag(field: number): boolean {
    return this.u8(field) !== 0;
  }

  /** '' if there is none. */
  text(field: number): string {
    const found = this.find(field);
    return found === 0 ? '' : this.bytes.text(this.bytes.follow(found));
  }

  texts(field: number): string[] {
    return this.elements(field, 4, (at) => this.bytes.text(this.bytes.follow(at)));
  }

  /** A table in a field; undefined if there is none. */
  table(field: number): FlatTable | undefined {
    const found = this.find(field);
    return found === 0
      ? undefined
      : new FlatTable(this.bytes, this.bytes.follow(found));
  }

  /** What `read` makes of each of the tables in a field. */
  tables<T>(field: number, read: (table: FlatTable) => T): T[] {
    const { at, count } = this.vector(field, 4);
    const tables: FlatTable[] = [];
    for (let i = 0; i < count; i++) {
      tables.push(new FlatTable(this.bytes, this.bytes.follow(at + 4 * i)));
    }
    return tables.map(read);
  }

  /** What `read` makes of the elements or structs of `size` bytes in a field. */
  elements<T>(field: number, size: number, read: (at: number) => T): T[] {
    const { at, count } = this.vector(field, size);
    this.bytes.visit(count);
    const found: T[] = [];
    for (let i = 0; i < count; i++) {
      found.push(read(at + size * i));
    }
    return found;
  }

  bytesOf(field: number): number[] {
    return this.elements(field, 1, (at) => this.bytes.u8(at));
  }

  u32s(field: number): number[] {
    return this.elements(field, 4, (at) => this.bytes.u32(at));
  }

  i32s(field: number): number[] {
    return this.elements(field, 4, (at) => this.bytes.i32(at));
  }

  u64s(field: number): Wide[] {
    return this.elements(field, 8, (at) => this.bytes.u64(at));
  }

  i64s(field: number): Wide[] {
    return this.elements(field, 8, (at) => this.bytes.i64(at));
  }

  /** Where the elements in a field are, none of which is visited. */
  vector(field: number, size: number): { at: number; count: number } {
    const found = this.find(field);
    if (found === 0) {
      return { at: 0, count: 0 };
    }
    const at = this.bytes.follow(found);
    const count = this.bytes.u32(at);
    this.bytes.require(at + 4, count * size);
    return { at: at + 4, count };
  }
}
