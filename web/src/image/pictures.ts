/** Pictures into a module and out of it: what an app calls. */

import { WebGPUError } from '../errors';
import type { Module } from '../module';
import { Tensor } from '../tensor';
import { type Picture, readPixels } from './pixels';
import { blank, crop, type Pixels } from './resize';
import {
  fitPicture,
  fromNumbers,
  type ImageSpec,
  maskPicture,
  toNumbers,
} from './tensors';
import { tilesOf } from './tiles';

/** What of a `Module` is used here. */
export type PictureModule = Pick<Module, 'execute'>;

/**
 * A picture as the tensor that a model takes.
 *
 * ```ts
 * const input = await pictureTensor(file, card.methods.forward.inputs[0].image);
 * const [chances] = await module.forward([input]);
 * ```
 */
export async function pictureTensor(
  picture: Picture,
  spec: ImageSpec,
): Promise<Tensor> {
  const fitted = await fitPicture(await readPixels(picture), spec);
  const { data, dims } = toNumbers(fitted, spec);
  return new Tensor('float32', data, dims);
}

/** The picture that a model gives, [1, 3, height, width]. */
export async function tensorPicture(tensor: Tensor, scale = 255): Promise<Pixels> {
  return fromNumbers(await numbersOf(tensor), tensor.dims, scale);
}

/** The mask that a model gives, [1, 1, height, width] of 0 to 1, as a gray picture. */
export async function tensorMask(tensor: Tensor): Promise<Pixels> {
  const [height = 1, width = 1] = tensor.dims.slice(-2);
  return maskPicture(await numbersOf(tensor), width, height);
}

/** How a model enlarges: the largest tile, its border, and how many times. */
export interface TileSpec {
  size: number;
  border: number;
  times: number;
  /** Sides of tiles are multiples of this; smaller pictures repeat their border. */
  step?: number;
}

/** What may be told and asked while a picture goes through in tiles. */
export interface TileOptions {
  signal?: AbortSignal;
  /** After each tile, how many are done, and the picture as far as it is. */
  onTile?: (done: number, total: number, picture: Pixels) => void;
}

/** A picture of any size through a model that enlarges tiles. */
export async function enlarge(
  module: PictureModule,
  picture: Picture,
  image: Omit<ImageSpec, 'width' | 'height'>,
  tile: TileSpec,
  options: TileOptions = {},
): Promise<Pixels> {
  const pixels = await readPixels(picture);
  const { times, step = 1 } = tile;
  const side = (length: number) => Math.min(Math.ceil(length / step) * step, tile.size);
  const [width, height] = [side(pixels.width), side(pixels.height)];
  const tiles = tilesOf(pixels.width, pixels.height, [width, height], tile.border);
  const result = blank(pixels.width * times, pixels.height * times);
  const spec = { ...image, width, height };
  for (const [index, part] of tiles.entries()) {
    options.signal?.throwIfAborted();
    const input = toNumbers(crop(pixels, part.left, part.top, width, height), spec);
    const tensor = new Tensor('float32', input.data, input.dims);
    const [output] = await module.execute('forward', [tensor]);
    const large = await tensorPicture(asTensor(output));
    copyPart(large, part.x * times, part.y * times, result, {
      left: (part.left + part.x) * times,
      top: (part.top + part.y) * times,
      width: part.width * times,
      height: part.height * times,
    });
    options.onTile?.(index + 1, tiles.length, result);
  }
  return result;
}

/** Copies a rectangle of one picture into another. */
export function copyPart(
  from: Pixels,
  x: number,
  y: number,
  to: Pixels,
  place: { left: number; top: number; width: number; height: number },
): void {
  for (let row = 0; row < place.height; row++) {
    const start = ((y + row) * from.width + x) * 4;
    const at = ((place.top + row) * to.width + place.left) * 4;
    to.data.set(from.data.subarray(start, start + place.width * 4), at);
  }
}

/** A result that must be a tensor. */
export function asTensor(value: unknown): Tensor {
  if (value instanceof Tensor) return value;
  throw new WebGPUError(
    'InvalidProgram',
    `the result must be a tensor, got ${value === undefined ? 'none' : typeof value}`,
  );
}

async function numbersOf(tensor: Tensor): Promise<ArrayLike<number>> {
  const data = await tensor.data();
  if (tensor.type === 'float32' || tensor.type === 'uint8') {
    return data as ArrayLike<number>;
  }
  throw new WebGPUError(
    'InvalidArgument',
    `a picture must be float32 or uint8, got ${tensor.type}`,
  );
}
