/** What tests need again and again in a page. */

import { numbersOf, Tensor } from '/dist/executorch-webgpu.js';

const ARRAYS = {
  float32: Float32Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  int64: BigInt64Array,
  int32: Int32Array,
  int16: Int16Array,
  int8: Int8Array,
  uint8: Uint8Array,
  bool: Uint8Array,
};

/** The bytes that Python wrote as base64. */
export function bytesOf(text) {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}

/** Bytes as the elements of a type. */
export function arrayOf(type, bytes) {
  return new ARRAYS[type](bytes.buffer);
}

/** A tensor that Python wrote. */
export function tensor({ type, dims, data }) {
  return new Tensor(type, arrayOf(type, bytesOf(data)), dims);
}

/** The largest difference between a result and a tensor that Python wrote. */
export async function distance(result, shown) {
  if (result.type !== shown.type || result.dims.join() !== shown.dims.join()) {
    return Number.POSITIVE_INFINITY;
  }
  const a = numbersOf(result.type, await result.data());
  const b = numbersOf(shown.type, arrayOf(shown.type, bytesOf(shown.data)));
  return Math.max(...Array.from(a, (x, i) => Math.abs(x - b[i])));
}

/** What some work fails with; an error if it does not. */
export async function refusal(work) {
  let result;
  try {
    result = await work();
  } catch (error) {
    return { code: error.code ?? error.name, message: error.message };
  }
  throw new Error(`an error was expected, got ${result}`);
}

/** What a module that sums gives for four more numbers. */
export async function add(module, ...x) {
  const [y] = await module.forward([new Tensor('float32', x, [4])]);
  return [...(await y.data())];
}
