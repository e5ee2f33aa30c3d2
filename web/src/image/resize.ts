/**
 * Pictures at another size, to the bit as Pillow does it: a model sees the same numbers
 * here as where it was trained and tested. A canvas would not do: every browser has its
 * own filter, and some let fine detail alias.
 */

import { WebGPUError } from '../errors';
import { inTurns } from './turns';

/** RGBA bytes in rows, as in ImageData. */
export interface Pixels {
  width: number;
  height: number;
  data: Uint8ClampedArray | Uint8Array;
}

/** How the pixels between pixels are found. */
export type Filter = 'nearest' | 'bilinear' | 'bicubic';

const FILTERS: Record<
  'bilinear' | 'bicubic',
  { support: number; weight: (x: number) => number }
> = {
  bilinear: { support: 1, weight: (x) => Math.max(0, 1 - Math.abs(x)) },
  bicubic: { support: 2, weight: (x) => cubic(Math.abs(x)) },
};

// Weights are integers with so many bits behind the point, as Pillow has them.
const BITS = 22;

/** A picture of the given size. Alpha is not looked at: the result is opaque. */
export async function resize(
  picture: Pixels,
  width: number,
  height: number,
  filter: Filter = 'bilinear',
): Promise<Pixels> {
  if (!(width >= 1 && height >= 1 && picture.width >= 1 && picture.height >= 1)) {
    throw new WebGPUError(
      'InvalidArgument',
      `resize: sizes must be at least 1x1, got ${picture.width}x${picture.height}` +
        ` to ${width}x${height}`,
    );
  }
  if (filter === 'nearest') return nearest(picture, width, height);
  let result = picture;
  if (width !== result.width) result = await across(result, width, filter);
  if (height !== result.height) result = await down(result, height, filter);
  return result;
}

/** The part of a picture; what lies outside repeats the border. */
export function crop(
  picture: Pixels,
  left: number,
  top: number,
  width: number,
  height: number,
): Pixels {
  const result = blank(width, height);
  for (let y = 0; y < height; y++) {
    const row = Math.min(Math.max(top + y, 0), picture.height - 1) * picture.width;
    for (let x = 0; x < width; x++) {
      const from = (row + Math.min(Math.max(left + x, 0), picture.width - 1)) * 4;
      const to = (y * width + x) * 4;
      for (let c = 0; c < 4; c++) result.data[to + c] = picture.data[from + c] ?? 0;
    }
  }
  return result;
}

/** A picture of one colour, transparent black unless its bytes are written. */
export function blank(width: number, height: number): Pixels {
  return { width, height, data: new Uint8ClampedArray(width * height * 4) };
}

function nearest(picture: Pixels, width: number, height: number): Pixels {
  const result = blank(width, height);
  const [sx, sy] = [picture.width / width, picture.height / height];
  for (let y = 0; y < height; y++) {
    const row = Math.min(Math.floor((y + 0.5) * sy), picture.height - 1);
    for (let x = 0; x < width; x++) {
      const column = Math.min(Math.floor((x + 0.5) * sx), picture.width - 1);
      const from = (row * picture.width + column) * 4;
      const to = (y * width + x) * 4;
      for (let c = 0; c < 4; c++) result.data[to + c] = picture.data[from + c] ?? 0;
    }
  }
  return result;
}

/** For every output pixel, the first input pixel and the weights from there on. */
export function weights(
  from: number,
  to: number,
  filter: 'bilinear' | 'bicubic',
): { first: Int32Array; count: Int32Array; values: Int32Array; stride: number } {
  const { support, weight } = FILTERS[filter];
  const scale = from / to;
  const wide = Math.max(scale, 1);
  const reach = support * wide;
  const stride = Math.ceil(reach) * 2 + 1;
  const first = new Int32Array(to);
  const count = new Int32Array(to);
  const values = new Int32Array(to * stride);
  const row = new Float64Array(stride);
  for (let out = 0; out < to; out++) {
    const center = (out + 0.5) * scale;
    const low = Math.max(Math.trunc(center - reach + 0.5), 0);
    const high = Math.min(Math.trunc(center + reach + 0.5), from);
    let sum = 0;
    for (let x = 0; x < high - low; x++) {
      const value = weight((x + low - center + 0.5) / wide);
      row[x] = value;
      sum += value;
    }
    first[out] = low;
    count[out] = high - low;
    for (let x = 0; x < high - low; x++) {
      const value = ((row[x] ?? 0) / (sum || 1)) * 2 ** BITS;
      values[out * stride + x] = Math.trunc(value < 0 ? value - 0.5 : value + 0.5);
    }
  }
  return { first, count, values, stride };
}

async function across(
  picture: Pixels,
  width: number,
  filter: 'bilinear' | 'bicubic',
): Promise<Pixels> {
  const result = blank(width, picture.height);
  const table = weights(picture.width, width, filter);
  const from = picture.data;
  const to = result.data;
  await inTurns(picture.height, (y) => {
    const row = y * picture.width;
    for (let x = 0; x < width; x++) {
      const start = (row + (table.first[x] as number)) * 4;
      const at = (y * width + x) * 4;
      sum(from, start, 4, table.values, x * table.stride, table.count[x] as number);
      store(to, at);
    }
  });
  return result;
}

async function down(
  picture: Pixels,
  height: number,
  filter: 'bilinear' | 'bicubic',
): Promise<Pixels> {
  const result = blank(picture.width, height);
  const table = weights(picture.height, height, filter);
  const step = picture.width * 4;
  await inTurns(height, (y) => {
    const start = (table.first[y] as number) * step;
    const count = table.count[y] as number;
    for (let x = 0; x < picture.width; x++) {
      sum(picture.data, start + x * 4, step, table.values, y * table.stride, count);
      store(result.data, y * step + x * 4);
    }
  });
  return result;
}

// The sums of one pixel: variables of the module, as an array would be slower.
let red = 0;
let green = 0;
let blue = 0;

function sum(
  data: Uint8ClampedArray | Uint8Array,
  start: number,
  step: number,
  table: Int32Array,
  at: number,
  count: number,
): void {
  red = green = blue = 1 << (BITS - 1);
  for (let k = 0; k < count; k++) {
    const weight = table[at + k] as number;
    const place = start + k * step;
    red += (data[place] as number) * weight;
    green += (data[place + 1] as number) * weight;
    blue += (data[place + 2] as number) * weight;
  }
}

function store(data: Uint8ClampedArray | Uint8Array, at: number): void {
  data[at] = byte(red);
  data[at + 1] = byte(green);
  data[at + 2] = byte(blue);
  data[at + 3] = 255;
}

function byte(value: number): number {
  return Math.min(Math.max(Math.floor(value / 2 ** BITS), 0), 255);
}

function cubic(x: number): number {
  const a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}
