/** The elements of a tensor as numbers, whatever its type. */

import { DType, Storage } from './file/plans';
import { toStorage } from './player/convert';
import type { TensorData, TensorType } from './tensor';

/** Those of halves are widened; those of int64 are rounded beyond 53 bits. */
export function numbersOf(type: TensorType, data: TensorData): ArrayLike<number> {
  if (data instanceof BigInt64Array) {
    return Float64Array.from(data, Number);
  }
  if (type === 'bfloat16' || (type === 'float16' && data instanceof Uint16Array)) {
    const dtype = type === 'float16' ? DType.Half : DType.BFloat16;
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    const wide = new Float32Array(data.length);
    toStorage(dtype, Storage.F32, bytes, new Uint8Array(wide.buffer), data.length);
    return wide;
  }
  return data;
}
