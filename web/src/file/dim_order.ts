/**
 * Elements in the order of a program's memory, such as channels last, and in that of the
 * shape, which is how tensors here have them.
 */

import type { TensorData } from '../tensor';

/** Whether memory has the order of the shape. */
export function isRowMajor(order: readonly number[]): boolean {
  return order.every((dim, place) => dim === place);
}

/** For each element in the shape's order, its place in memory's. */
function placesOf(dims: readonly number[], order: readonly number[]): Uint32Array {
  const strides = new Array<number>(dims.length).fill(0);
  let stride = 1;
  for (const dim of [...order].reverse()) {
    strides[dim] = stride;
    stride *= dims[dim] ?? 0;
  }
  let places = Uint32Array.of(0);
  dims.forEach((extent, dim) => {
    const step = strides[dim] ?? 0;
    const next = new Uint32Array(places.length * extent);
    for (let i = 0; i < next.length; i++) {
      next[i] = places[Math.floor(i / extent)]! + (i % extent) * step;
    }
    places = next;
  });
  return places;
}

function like<T extends TensorData>(data: T): T {
  return new (data.constructor as new (length: number) => T)(data.length);
}

/** From the shape's order to memory's. */
export function toMemoryOrder<T extends TensorData>(
  data: T,
  dims: readonly number[],
  order: readonly number[],
): T {
  if (isRowMajor(order)) {
    return data;
  }
  const made = like(data);
  placesOf(dims, order).forEach((place, i) => {
    made[place] = data[i]!;
  });
  return made;
}

/** From memory's order to the shape's. */
export function fromMemoryOrder<T extends TensorData>(
  data: T,
  dims: readonly number[],
  order: readonly number[],
): T {
  if (isRowMajor(order)) {
    return data;
  }
  const made = like(data);
  placesOf(dims, order).forEach((place, i) => {
    made[i] = data[place]!;
  });
  return made;
}
