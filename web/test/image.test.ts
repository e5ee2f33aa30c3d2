import { describe, expect, test } from 'vitest';
import {
  copyPart,
  crop,
  cutOut,
  fitPicture,
  fromNumbers,
  maskPicture,
  normalizeMask,
  type Pixels,
  resize,
  tilesOf,
  toNumbers,
} from '../src/image';

/** The same numbers as in the Python that gave what is expected. */
function picture(width: number, height: number): Pixels {
  const data = new Uint8ClampedArray(width * height * 4);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const at = (y * width + x) * 4;
      data[at] = (x * 37 + y * 11) % 256;
      data[at + 1] = (x * x + y * 5) % 256;
      data[at + 2] = (x * y * 7 + 13) % 256;
      data[at + 3] = 255;
    }
  }
  return { width, height, data };
}

function colour(pixels: Pixels, index: number): number[] {
  return [...pixels.data.slice(index * 4, index * 4 + 3)];
}

function sums(pixels: Pixels): number[] {
  const result = [0, 0, 0];
  pixels.data.forEach((value, index) => {
    if (index % 4 < 3) result[index % 4] = (result[index % 4] ?? 0) + value;
  });
  return result;
}

describe('resize', () => {
  // By Pillow 12: Image.fromarray(...).resize((w, h), filter).
  test.each([
    [
      [13, 9],
      [5, 4],
      'bilinear',
      [
        [48, 6, 19],
        [166, 156, 119],
      ],
      [2586, 1388, 1869],
    ],
    [
      [5, 4],
      [11, 7],
      'bilinear',
      [
        [0, 0, 13],
        [181, 31, 97],
      ],
      [6974, 1052, 2621],
    ],
    [
      [13, 9],
      [6, 5],
      'bicubic',
      [
        [28, 3, 15],
        [141, 167, 111],
      ],
      [3864, 2090, 2773],
    ],
    [
      [4, 5],
      [9, 7],
      'bicubic',
      [
        [0, 0, 13],
        [159, 29, 101],
      ],
      [4892, 840, 2143],
    ],
  ] as const)(
    'from %s to %s is as Pillow has it (%s)',
    async (from, to, filter, ends, all) => {
      const result = await resize(picture(from[0], from[1]), to[0], to[1], filter);
      expect([result.width, result.height]).toEqual(to);
      expect(colour(result, 0)).toEqual(ends[0]);
      expect(colour(result, to[0] * to[1] - 1)).toEqual(ends[1]);
      expect(sums(result)).toEqual(all);
    },
  );

  test('by nearest pixels repeats them', async () => {
    const result = await resize(picture(2, 1), 4, 2, 'nearest');
    expect([0, 1, 2, 3].map((index) => colour(result, index)[0])).toEqual([
      0, 0, 37, 37,
    ]);
  });

  test('refuses a picture without pixels', async () => {
    await expect(resize(picture(3, 3), 0, 2)).rejects.toThrow('got 3x3 to 0x2');
  });
});

test('a crop repeats the border outside of the picture', () => {
  const result = crop(picture(3, 2), -1, 0, 3, 3);
  expect(colour(result, 0)).toEqual(colour(picture(3, 2), 0));
  expect(colour(result, 2)).toEqual(colour(picture(3, 2), 1));
  expect(colour(result, 8)).toEqual(colour(picture(3, 2), 4));
});

test('the middle of a wide picture is taken', async () => {
  const wide = picture(12, 4);
  const result = await fitPicture(wide, { width: 4, height: 4, fit: 'crop' });
  expect(colour(result, 0)).toEqual(colour(wide, 4));
  expect(colour(result, 15)).toEqual(colour(wide, 43));
});

test('the shorter side may be longer than the input, as torchvision has it', async () => {
  const spec = { width: 4, height: 4, fit: 'crop', shortest: 6 } as const;
  const wide = picture(12, 6);
  expect(colour(await fitPicture(wide, spec), 0)).toEqual(colour(wide, 12 + 4));
});

test('numbers are scaled, and channels come first', () => {
  const spec = { width: 2, height: 1, scale: 1, mean: [127, 0, 3], std: [128, 1, 2] };
  const { data, dims } = toNumbers(picture(2, 1), spec);
  expect(dims).toEqual([1, 3, 1, 2]);
  expect([...data]).toEqual(
    [-127 / 128, -90 / 128, 0, 1, 5, 5].map((value) => Math.fround(value)),
  );
  const last = toNumbers(picture(2, 1), { ...spec, layout: 'nhwc', channels: 'bgr' });
  expect(last.dims).toEqual([1, 1, 2, 3]);
  expect(last.data[0]).toBe(Math.fround((13 - 127) / 128));
});

test('numbers become a picture, and nothing wraps around', () => {
  const result = fromNumbers([0, 1.5, -0.2, 0.5, 1, 0.25], [1, 3, 1, 2]);
  expect([...result.data]).toEqual([0, 0, 255, 255, 255, 128, 64, 255]);
  expect(() => fromNumbers([1, 2], [1, 1, 1, 2])).toThrow('got [1, 1, 1, 2]');
});

test('a mask cuts out, over nothing or over a colour', async () => {
  const mask = maskPicture([1, 0], 2, 1);
  const plain = await cutOut(picture(2, 1), mask);
  expect([plain.data[3], plain.data[7]]).toEqual([255, 0]);
  const white = await cutOut(picture(2, 1), mask, [255, 255, 255]);
  expect(colour(white, 0)).toEqual([0, 0, 13]);
  expect(colour(white, 1)).toEqual([255, 255, 255]);
});

test('a mask is stretched to 0 and 1, one of equal numbers too', () => {
  expect([...normalizeMask([2, 4, 3])]).toEqual([0, 1, 0.5]);
  expect([...normalizeMask([2, 2])]).toEqual([0, 0]);
});

describe('tiles', () => {
  test.each([
    [1, 1],
    [100, 37],
    [128, 128],
    [129, 300],
    [1000, 131],
  ])('cover %s x %s once, and keep away from inner edges', (width, height) => {
    const seen = new Uint8Array(width * height);
    const size: [number, number] = [Math.min(width, 128), Math.min(height, 128)];
    for (const tile of tilesOf(width, height, size, 10)) {
      expect(tile.left).toBeGreaterThanOrEqual(0);
      expect(tile.left + size[0]).toBeLessThanOrEqual(width);
      if (tile.left > 0) expect(tile.x).toBeGreaterThanOrEqual(10);
      if (tile.left + size[0] < width) {
        expect(tile.x + tile.width).toBeLessThanOrEqual(size[0] - 10);
      }
      for (let y = 0; y < tile.height; y++) {
        for (let x = 0; x < tile.width; x++) {
          const at = (tile.top + tile.y + y) * width + tile.left + tile.x + x;
          seen[at] = (seen[at] ?? 0) + 1;
        }
      }
    }
    expect(seen.every((count) => count === 1)).toBe(true);
  });

  test('are put together to the picture they were cut from', () => {
    const whole = picture(50, 41);
    const result: Pixels = { width: 50, height: 41, data: new Uint8Array(50 * 41 * 4) };
    for (const tile of tilesOf(50, 41, [16, 16], 3)) {
      const part = crop(whole, tile.left, tile.top, 16, 16);
      const place = { ...tile, left: tile.left + tile.x, top: tile.top + tile.y };
      copyPart(part, tile.x, tile.y, result, place);
    }
    expect(Buffer.from(result.data).equals(Buffer.from(whole.data))).toBe(true);
  });
});
