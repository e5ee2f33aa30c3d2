/** Checksums: CRC-32 finds damage, SHA-256 also what was made to do harm. */

import { DType } from './plans';

let crcTable: Uint32Array | undefined;

function makeCrcTable(): Uint32Array {
  return Uint32Array.from({ length: 256 }, (_, byte) => {
    let value = byte;
    for (let bit = 0; bit < 8; bit++) {
      value = (value & 1) !== 0 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
    }
    return value;
  });
}

/** As zlib computes it. */
export function crc32(bytes: Uint8Array): number {
  crcTable ??= makeCrcTable();
  let value = 0xffffffff;
  for (let i = 0; i < bytes.length; i++) {
    value = (value >>> 8) ^ crcTable[(value ^ bytes[i]!) & 0xff]!;
  }
  return (value ^ 0xffffffff) >>> 0;
}

/** The first primes, in order. */
export function firstPrimes(count: number): number[] {
  const found: number[] = [];
  for (let n = 2; found.length < count; n++) {
    if (found.every((prime) => n % prime !== 0)) {
      found.push(n);
    }
  }
  return found;
}

/** The first 32 bits of the fractions of roots of the first primes, as SHA-256 has it. */
function fractions(count: number, root: number): Int32Array {
  return Int32Array.from(firstPrimes(count), (prime) => {
    const value = prime ** (1 / root);
    return Math.floor((value - Math.floor(value)) * 2 ** 32);
  });
}

const ROUNDS = fractions(64, 3);
const START = fractions(8, 2);

/** SHA-256 of bytes that come one after the other. */
export class Sha256 {
  readonly #state = START.slice();
  readonly #words = new Int32Array(64);
  readonly #rest = new Uint8Array(64);
  #size = 0;

  add(bytes: Uint8Array): this {
    let at = 0;
    const filled = this.#size % 64;
    this.#size += bytes.length;
    if (filled > 0) {
      at = Math.min(bytes.length, 64 - filled);
      this.#rest.set(bytes.subarray(0, at), filled);
      if (filled + at < 64) {
        return this;
      }
      this.#mix(this.#rest, 0);
    }
    for (; at + 64 <= bytes.length; at += 64) {
      this.#mix(bytes, at);
    }
    this.#rest.set(bytes.subarray(at));
    return this;
  }

  /** The 32 bytes of the digest; nothing can be added after it. */
  digest(): Uint8Array<ArrayBuffer> {
    const bits = this.#size * 8;
    const padding = new Uint8Array(((119 - (this.#size % 64)) % 64) + 9);
    padding[0] = 0x80;
    const end = new DataView(padding.buffer, padding.length - 8);
    end.setUint32(0, Math.floor(bits / 2 ** 32));
    end.setUint32(4, bits % 2 ** 32);
    this.add(padding);
    const digest = new Uint8Array(32);
    const view = new DataView(digest.buffer);
    for (let i = 0; i < 8; i++) {
      view.setInt32(4 * i, this.#state[i]!);
    }
    return digest;
  }

  #mix(bytes: Uint8Array, at: number): void {
    const w = this.#words;
    for (let i = 0, j = at; i < 16; i++, j += 4) {
      w[i] =
        (bytes[j]! << 24) |
        (bytes[j + 1]! << 16) |
        (bytes[j + 2]! << 8) |
        bytes[j + 3]!;
    }
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15]!;
      const y = w[i - 2]!;
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[i] = (w[i - 16]! + s0 + w[i - 7]! + s1) | 0;
    }
    const state = this.#state;
    let a = state[0]!;
    let b = state[1]!;
    let c = state[2]!;
    let d = state[3]!;
    let e = state[4]!;
    let f = state[5]!;
    let g = state[6]!;
    let h = state[7]!;
    for (let i = 0; i < 64; i++) {
      const s1 =
        ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const first = (h + s1 + ((e & f) ^ (~e & g)) + ROUNDS[i]! + w[i]!) | 0;
      const s0 =
        ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const second = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g;
      g = f;
      f = e;
      e = (d + first) | 0;
      d = c;
      c = b;
      b = a;
      a = (first + second) | 0;
    }
    state[0]! += a;
    state[1]! += b;
    state[2]! += c;
    state[3]! += d;
    state[4]! += e;
    state[5]! += f;
    state[6]! += g;
    state[7]! += h;
  }
}

/** Bytes in hexadecimal. */
export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** SHA-256 of bytes that are all there: by the browser, where it offers that. */
export async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  // Pages that come by http have none.
  const subtle = globalThis.crypto?.subtle as SubtleCrypto | undefined;
  if (subtle === undefined) {
    return new Sha256().add(bytes).digest();
  }
  return new Uint8Array(await subtle.digest('SHA-256', bytes));
}

const LABELS: Record<DType, string> = {
  [DType.Byte]: 'uint8',
  [DType.Char]: 'int8',
  [DType.Short]: 'int16',
  [DType.Int]: 'int32',
  [DType.Long]: 'int64',
  [DType.Half]: 'float16',
  [DType.Float]: 'float32',
  [DType.Bool]: 'bool',
  [DType.BFloat16]: 'bfloat16',
};

/** What is hashed before a constant's bytes, as Python prints it. */
function contentHead(dtype: DType, shape: number[]): Uint8Array {
  const tuple = `(${shape.join(', ')}${shape.length === 1 ? ',)' : ')'}`;
  return new TextEncoder().encode(`torch.${LABELS[dtype]}${tuple}`);
}

function keyOf(digest: Uint8Array): string {
  return `webgpu_${hex(digest.subarray(0, 16))}`;
}

/** The key of a constant whose bytes come one after the other. */
export class ContentHash {
  readonly #digest = new Sha256();

  constructor(dtype: DType, shape: number[]) {
    this.#digest.add(contentHead(dtype, shape));
  }

  add(bytes: Uint8Array): void {
    this.#digest.add(bytes);
  }

  /** The key; nothing can be added after it. */
  key(): string {
    return keyOf(this.#digest.digest());
  }
}

let together = new Uint8Array(0);

/**
 * The key of a constant in named data: its type, shape and bytes, hashed. Bytes that the
 * page should not hold twice go through `ContentHash`.
 */
export async function contentKey(
  dtype: DType,
  shape: number[],
  bytes: Uint8Array,
): Promise<string> {
  const head = contentHead(dtype, shape);
  const size = head.length + bytes.length;
  // Browsers copy what they hash when they are asked to, so that this is used again.
  if (together.length < size) {
    together = new Uint8Array(size);
  }
  const all = together.subarray(0, size);
  all.set(head);
  all.set(bytes, head.length);
  return keyOf(await sha256(all));
}
