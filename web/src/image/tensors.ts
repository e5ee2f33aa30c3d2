/** Between pictures and the numbers of a model, as the model's metadata says. */

import { WebGPUError } from '../errors';
import { blank, crop, type Filter, type Pixels, resize } from './resize';

/** How a model wants its picture. */
export interface ImageSpec {
  /** Of the model's input. */
  width: number;
  height: number;
  /**
   * `stretch` takes all of the picture, whatever its form; `crop` makes the shorter side
   * `shortest` long (or fits the input) and takes the middle.
   */
  fit?: 'stretch' | 'crop';
  shortest?: number;
  filter?: Filter;
  /** Numbers are (byte * scale - mean) / std; by default 0 to 1. */
  scale?: number;
  mean?: readonly number[];
  std?: readonly number[];
  /** Of the numbers: channels first, as PyTorch has them, or last. */
  layout?: 'nchw' | 'nhwc';
  channels?: 'rgb' | 'bgr' | 'gray';
}

/** The picture at the model's size. */
export async function fitPicture(picture: Pixels, spec: ImageSpec): Promise<Pixels> {
  const { width, height, filter = 'bilinear' } = spec;
  if ((spec.fit ?? 'stretch') === 'stretch') {
    return resize(picture, width, height, filter);
  }
  const [w, h] = coveringSize(picture, spec);
  const scaled = await resize(picture, w, h, filter);
  // As torchvision's CenterCrop rounds.
  const left = roundEven((w - width) / 2);
  const top = roundEven((h - height) / 2);
  return crop(scaled, left, top, width, height);
}

/** The size at which a picture covers the input, before its middle is cut out. */
export function coveringSize(picture: Pixels, spec: ImageSpec): [number, number] {
  if (spec.shortest !== undefined) {
    const short = Math.min(picture.width, picture.height);
    const long = Math.floor(
      (spec.shortest * Math.max(picture.width, picture.height)) / short,
    );
    return picture.width <= picture.height
      ? [spec.shortest, Math.max(long, spec.height)]
      : [Math.max(long, spec.width), spec.shortest];
  }
  const scale = Math.max(spec.width / picture.width, spec.height / picture.height);
  return [
    Math.max(spec.width, Math.round(picture.width * scale)),
    Math.max(spec.height, Math.round(picture.height * scale)),
  ];
}

/** The numbers of a picture that has the model's size, and their shape. */
export function toNumbers(
  picture: Pixels,
  spec: ImageSpec,
): { data: Float32Array<ArrayBuffer>; dims: number[] } {
  const { width, height } = picture;
  const order = { rgb: [0, 1, 2], bgr: [2, 1, 0], gray: [0] }[spec.channels ?? 'rgb'];
  const count = order.length;
  const pixels = width * height;
  const data = new Float32Array(count * pixels);
  const scale = spec.scale ?? 1 / 255;
  const last = spec.layout === 'nhwc';
  order.forEach((channel, index) => {
    const mean = spec.mean?.[index] ?? 0;
    const std = spec.std?.[index] ?? 1;
    for (let pixel = 0; pixel < pixels; pixel++) {
      const byte =
        spec.channels === 'gray'
          ? luma(picture.data, pixel * 4)
          : (picture.data[pixel * 4 + channel] ?? 0);
      const place = last ? pixel * count + index : index * pixels + pixel;
      data[place] = (byte * scale - mean) / std;
    }
  });
  return {
    data,
    dims: last ? [1, height, width, count] : [1, count, height, width],
  };
}

/** A model's picture, [1, 3, H, W] or [3, H, W], as bytes. */
export function fromNumbers(
  data: ArrayLike<number>,
  dims: readonly number[],
  scale = 255,
): Pixels {
  const [channels, height, width] = dims.slice(-3);
  const rest = dims.slice(0, -3).every((size) => size === 1);
  if (channels !== 3 || height === undefined || width === undefined || !rest) {
    throw new WebGPUError(
      'InvalidArgument',
      `fromNumbers: a picture must be [1, 3, height, width], got [${dims.join(', ')}]`,
    );
  }
  const result = blank(width, height);
  const pixels = width * height;
  for (let pixel = 0; pixel < pixels; pixel++) {
    for (let channel = 0; channel < 3; channel++) {
      // Clamped and rounded by the array, halves to even.
      result.data[pixel * 4 + channel] = (data[channel * pixels + pixel] ?? 0) * scale;
    }
    result.data[pixel * 4 + 3] = 255;
  }
  return result;
}

/** A mask of one number per pixel, 0 to 1, as a gray picture. */
export function maskPicture(
  mask: ArrayLike<number>,
  width: number,
  height: number,
): Pixels {
  const result = blank(width, height);
  for (let pixel = 0; pixel < width * height; pixel++) {
    const value = (mask[pixel] ?? 0) * 255;
    for (let channel = 0; channel < 3; channel++) {
      result.data[pixel * 4 + channel] = value;
    }
    result.data[pixel * 4 + 3] = 255;
  }
  return result;
}

/** Stretches numbers so that the smallest is 0 and the largest 1. */
export function normalizeMask(mask: ArrayLike<number>): Float32Array {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (let index = 0; index < mask.length; index++) {
    low = Math.min(low, mask[index] ?? low);
    high = Math.max(high, mask[index] ?? high);
  }
  const span = high > low ? high - low : 1;
  return Float32Array.from(mask, (value) => (value - low) / span);
}

/**
 * What a mask keeps of a picture. The mask may have another size. Without a background
 * colour the rest is transparent.
 */
export async function cutOut(
  picture: Pixels,
  mask: Pixels,
  background?: readonly [number, number, number],
): Promise<Pixels> {
  const fitted = await resize(mask, picture.width, picture.height, 'bilinear');
  const result = blank(picture.width, picture.height);
  for (let at = 0; at < result.data.length; at += 4) {
    const kept = (fitted.data[at] ?? 0) / 255;
    for (let channel = 0; channel < 3; channel++) {
      const value = picture.data[at + channel] ?? 0;
      const behind = background?.[channel] ?? 0;
      result.data[at + channel] = background
        ? value * kept + behind * (1 - kept)
        : value;
    }
    result.data[at + 3] = background ? 255 : kept * 255;
  }
  return result;
}

function luma(data: ArrayLike<number>, at: number): number {
  // The weights of ITU-R 601 in 16 bits, as Pillow rounds them.
  const sum =
    (data[at] ?? 0) * 19595 + (data[at + 1] ?? 0) * 38470 + (data[at + 2] ?? 0) * 7471;
  return (sum + 0x8000) >> 16;
}

function roundEven(value: number): number {
  const low = Math.floor(value);
  if (value - low !== 0.5) return Math.round(value);
  return low % 2 === 0 ? low : low + 1;
}
