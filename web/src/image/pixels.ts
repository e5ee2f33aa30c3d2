/** Pictures of every kind that a page has, as bytes, and bytes as pictures. */

import { WebGPUError } from '../errors';
import type { Pixels } from './resize';

/** What a picture may come from. */
export type Picture =
  | Blob
  | HTMLImageElement
  | HTMLVideoElement
  | HTMLCanvasElement
  | OffscreenCanvas
  | ImageBitmap
  | ImageData
  | Pixels;

/** Larger pictures are made smaller first: a phone's memory is small. */
const MOST_PIXELS = 2 ** 24;

/** The bytes of a picture, turned as its camera says; of a video, the current frame. */
export async function readPixels(picture: Picture): Promise<Pixels> {
  if ('data' in picture && 'width' in picture) {
    return { width: picture.width, height: picture.height, data: picture.data };
  }
  if (picture instanceof Blob) {
    const bitmap = await decode(picture);
    try {
      return draw(bitmap, bitmap.width, bitmap.height);
    } finally {
      bitmap.close();
    }
  }
  const [width, height] = sizeOf(picture);
  if (!(width > 0 && height > 0)) {
    throw new WebGPUError(
      'InvalidArgument',
      `readPixels: the picture must be loaded, got ${width}x${height} pixels;` +
        ' wait for its load event',
    );
  }
  return draw(picture, width, height);
}

/** For a canvas's `putImageData`. */
export function toImageData(pixels: Pixels): ImageData {
  const { width, height, data } = pixels;
  const copy = new Uint8ClampedArray(width * height * 4);
  copy.set(data);
  return new ImageData(copy, width, height);
}

/** Shows a picture on a canvas, which takes its size. */
export function show(canvas: HTMLCanvasElement, pixels: Pixels): void {
  canvas.width = pixels.width;
  canvas.height = pixels.height;
  context(canvas).putImageData(toImageData(pixels), 0, 0);
}

/** The picture as a file, such as one to download. */
export async function toBlob(pixels: Pixels, type = 'image/png'): Promise<Blob> {
  const canvas = new OffscreenCanvas(pixels.width, pixels.height);
  context(canvas).putImageData(toImageData(pixels), 0, 0);
  return canvas.convertToBlob({ type });
}

async function decode(file: Blob): Promise<ImageBitmap> {
  try {
    // Numbers as they are in the file: a model was trained on those.
    return await createImageBitmap(file, {
      colorSpaceConversion: 'none',
      premultiplyAlpha: 'none',
    });
  } catch (error) {
    const what = file.type || 'a file of unknown type';
    throw new WebGPUError(
      'InvalidArgument',
      `readPixels: the file must be a picture that this browser reads, got ${what};` +
        ' try a JPEG or PNG',
      { cause: error },
    );
  }
}

function sizeOf(
  picture: Exclude<Picture, Blob | ImageData | Pixels>,
): [number, number] {
  if ('videoWidth' in picture) return [picture.videoWidth, picture.videoHeight];
  if ('naturalWidth' in picture) return [picture.naturalWidth, picture.naturalHeight];
  return [picture.width, picture.height];
}

function draw(source: CanvasImageSource, width: number, height: number): Pixels {
  const scale = Math.min(1, Math.sqrt(MOST_PIXELS / (width * height)));
  const [w, h] = [
    Math.max(1, Math.round(width * scale)),
    Math.max(1, Math.round(height * scale)),
  ];
  const surface = context(new OffscreenCanvas(w, h));
  surface.drawImage(source, 0, 0, w, h);
  return surface.getImageData(0, 0, w, h);
}

function context(
  canvas: HTMLCanvasElement | OffscreenCanvas,
): CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D {
  const result = canvas.getContext('2d', { willReadFrequently: true }) as
    | CanvasRenderingContext2D
    | OffscreenCanvasRenderingContext2D
    | null;
  if (!result) {
    throw new WebGPUError(
      'AccessFailed',
      'readPixels: the browser must give a 2D canvas, got none; close other tabs',
    );
  }
  return result;
}
