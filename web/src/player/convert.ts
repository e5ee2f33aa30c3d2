/**
 * Element conversion between tensors in host memory and GPU buffers.
 *
 * A buffer holds f32, f16 or i32. Bytes are little-endian, as on every machine that has
 * WebGPU, and may start anywhere in their memory. The results are those of
 * csrc/player/convert.cpp, to the bit.
 */

import { DType, Storage } from '../file/plans';

/** Bytes of one element on the GPU. */
export function storageSize(storage: Storage): number {
  return storage === Storage.F16 ? 2 : 4;
}

/** Bytes of one element in a tensor; 0 if the GPU has no storage for the type. */
export function scalarSize(dtype: DType): number {
  switch (dtype) {
    case DType.Bool:
    case DType.Byte:
    case DType.Char:
      return 1;
    case DType.Short:
    case DType.Half:
    case DType.BFloat16:
      return 2;
    case DType.Int:
    case DType.Float:
      return 4;
    case DType.Long:
      return 8;
    default:
      return 0;
  }
}

/** Whether a tensor's bytes are the buffer's. */
export function isSameBytes(dtype: DType, storage: Storage): boolean {
  switch (storage) {
    case Storage.F32:
      return dtype === DType.Float;
    case Storage.F16:
      return dtype === DType.Half;
    case Storage.I32:
      return dtype === DType.Int;
    default:
      return false;
  }
}

/** Whether elements of `dtype` can be held as `storage`. */
export function isConvertible(dtype: DType, storage: Storage): boolean {
  switch (dtype) {
    case DType.Float:
    case DType.BFloat16:
      return storage === Storage.F32;
    case DType.Half:
      return storage !== Storage.I32;
    default:
      return scalarSize(dtype) !== 0 && storage === Storage.I32;
  }
}

/** Bytes that `count` elements take up in a buffer: a multiple of 4. */
export function storedSize(storage: Storage, count: number): number {
  return Math.ceil((storageSize(storage) * count) / 4) * 4;
}

type Numbers =
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array;

interface View<T> {
  readonly BYTES_PER_ELEMENT: number;
  new (buffer: ArrayBufferLike, start: number, length: number): T;
}

/** Elements at any place in memory: those at an odd one are copied first. */
function viewed<T>(kind: View<T>, bytes: Uint8Array, count: number): T {
  const size = kind.BYTES_PER_ELEMENT * count;
  if (bytes.byteOffset % kind.BYTES_PER_ELEMENT === 0) {
    return new kind(bytes.buffer, bytes.byteOffset, count);
  }
  return new kind(bytes.slice(0, size).buffer, 0, count);
}

/** Has `fill` write elements to any place in memory. */
function filled<T extends Numbers>(
  kind: View<T>,
  bytes: Uint8Array,
  count: number,
  fill: (target: T) => void,
): void {
  const size = kind.BYTES_PER_ELEMENT * count;
  const isAligned = bytes.byteOffset % kind.BYTES_PER_ELEMENT === 0;
  const target = isAligned
    ? new kind(bytes.buffer, bytes.byteOffset, count)
    : new kind(new ArrayBuffer(size), 0, count);
  fill(target);
  if (!isAligned) {
    bytes.set(new Uint8Array(target.buffer, 0, size));
  }
}

// The bits of the floats that all halves are, made when the first is needed.
let halves: Uint32Array | undefined;

function makeHalves(): Uint32Array {
  const bits = new Uint32Array(1 << 16);
  const value = new Float32Array(1);
  const valueBits = new Uint32Array(value.buffer);
  for (let half = 0; half < bits.length; half++) {
    const sign = ((half & 0x8000) << 16) >>> 0;
    const exponent = (half >> 10) & 31;
    const mantissa = half & 0x3ff;
    let magnitude: number;
    if (exponent === 0) {
      value[0] = mantissa * 2 ** -24;
      magnitude = valueBits[0] ?? 0;
    } else if (exponent === 31) {
      // A NaN becomes a quiet one, as it does by arithmetic.
      magnitude = 0x7f800000 | (mantissa << 13) | (mantissa === 0 ? 0 : 0x400000);
    } else {
      magnitude = ((exponent + 112) << 23) | (mantissa << 13);
    }
    bits[half] = sign | magnitude;
  }
  return bits;
}

/** The bits of the nearest half, of two that are as near the even one. */
function halfBits(bits: number): number {
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {
    return sign | 0x7e00;
  }
  if (magnitude >= 0x47800000) {
    return sign | 0x7c00;
  }
  if (magnitude >= 0x38800000) {
    const rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
    return sign | ((rounded - 0x38000000) >> 13);
  }
  if (magnitude < 0x33000000) {
    return sign;
  }
  const mantissa = (magnitude & 0x7fffff) | 0x800000;
  const shift = 126 - (magnitude >> 23);
  const kept = mantissa >> shift;
  const rest = mantissa & ((1 << shift) - 1);
  const half = 1 << (shift - 1);
  const isUp = rest > half || (rest === half && (kept & 1) === 1);
  return sign | (kept + (isUp ? 1 : 0));
}

function bfloat16Bits(bits: number): number {
  const isNumber = (bits & 0x7fffffff) <= 0x7f800000;
  return isNumber ? (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16 : 0x7fc0;
}

function mapped<T extends Numbers>(
  source: ArrayLike<number>,
  target: T,
  convert: (element: number) => number,
): void {
  for (let i = 0; i < target.length; i++) {
    target[i] = convert(source[i] ?? 0);
  }
}

/** int64 to int32; the index of the first that does not fit, or the count. */
function narrow(source: Int32Array, target: Int32Array): number {
  for (let i = 0; i < target.length; i++) {
    const low = source[2 * i] ?? 0;
    if (source[2 * i + 1] !== low >> 31) {
      return i;
    }
    target[i] = low;
  }
  return target.length;
}

/**
 * Host to GPU: `count` elements from the start of `source` to the start of `target`.
 * Returns `count`, or the index of the first int64 that does not fit int32; `target` is
 * then undefined. Bytes of `target` behind the elements stay as they are.
 */
export function toStorage(
  dtype: DType,
  storage: Storage,
  source: Uint8Array,
  target: Uint8Array,
  count: number,
): number {
  if (isSameBytes(dtype, storage)) {
    target.set(source.subarray(0, count * storageSize(storage)));
    return count;
  }
  let done = count;
  switch (dtype) {
    case DType.Half: {
      halves ??= makeHalves();
      const table = halves;
      const from = viewed(Uint16Array, source, count);
      filled(Uint32Array, target, count, (to) =>
        mapped(from, to, (x) => table[x] ?? 0),
      );
      break;
    }
    case DType.BFloat16: {
      const from = viewed(Uint16Array, source, count);
      filled(Uint32Array, target, count, (to) => mapped(from, to, (x) => x << 16));
      break;
    }
    case DType.Long: {
      const from = viewed(Int32Array, source, 2 * count);
      filled(Int32Array, target, count, (to) => {
        done = narrow(from, to);
      });
      break;
    }
    case DType.Short:
      filled(Int32Array, target, count, (to) =>
        to.set(viewed(Int16Array, source, count)),
      );
      break;
    case DType.Char:
      filled(Int32Array, target, count, (to) =>
        to.set(viewed(Int8Array, source, count)),
      );
      break;
    default:
      filled(Int32Array, target, count, (to) => to.set(source.subarray(0, count)));
      break;
  }
  return done;
}

/** GPU to host: `count` elements from the start of `source` to that of `target`. */
export function fromStorage(
  dtype: DType,
  storage: Storage,
  source: Uint8Array,
  target: Uint8Array,
  count: number,
): void {
  if (isSameBytes(dtype, storage)) {
    target.set(source.subarray(0, count * storageSize(storage)));
    return;
  }
  if (dtype === DType.Half || dtype === DType.BFloat16) {
    const convert = dtype === DType.Half ? halfBits : bfloat16Bits;
    const from = viewed(Uint32Array, source, count);
    filled(Uint16Array, target, count, (to) => mapped(from, to, convert));
    return;
  }
  const from = viewed(Int32Array, source, count);
  switch (dtype) {
    case DType.Long:
      filled(Int32Array, target, 2 * count, (to) => {
        for (let i = 0; i < count; i++) {
          const value = from[i] ?? 0;
          to[2 * i] = value;
          to[2 * i + 1] = value >> 31;
        }
      });
      break;
    case DType.Short:
      filled(Int16Array, target, count, (to) => to.set(from));
      break;
    case DType.Char:
    case DType.Byte:
      filled(Uint8Array, target, count, (to) => to.set(from));
      break;
    default:
      filled(Uint8Array, target, count, (to) =>
        mapped(from, to, (x) => (x === 0 ? 0 : 1)),
      );
      break;
  }
}
