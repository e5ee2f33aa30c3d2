/** What the pages compute themselves. */

import { describe, expect, test } from 'vitest';
import { bytes, duration } from '../site/shared/dom';
import { notesOf } from '../site/shared/pitch_plot';
import { filled } from '../site/shared/program_inputs';
import { asPicture, statistics } from '../site/shared/program_outputs';
import { enlarge, type Pixels } from '../src/image';
import { numbersOf } from '../src/numbers';
import { Tensor } from '../src/tensor';

async function numbers(tensor: Tensor): Promise<number[]> {
  return Array.from(numbersOf(tensor.type, await tensor.data()));
}

describe('inputs of any program', () => {
  test('are the same every time', async () => {
    const first = filled('float32', [100], 'random', undefined, 3);
    const again = filled('float32', [100], 'random', undefined, 3);
    expect(await numbers(first)).toEqual(await numbers(again));
    const values = await numbers(filled('float32', [10000], 'random', undefined, 1));
    const { mean, deviation } = statistics(values);
    expect(mean).toBeCloseTo(0, 1);
    expect(deviation).toBeCloseTo(1, 1);
  });

  test('have the type that is wanted', async () => {
    const count = (type: Parameters<typeof filled>[0]) =>
      numbers(filled(type, [2, 2], 'counting', undefined, 0));
    for (const type of ['float32', 'float16', 'bfloat16', 'int64', 'uint8'] as const) {
      expect(await count(type)).toEqual([0, 1, 2, 3]);
    }
    const given = filled('float16', [2], 'numbers', [0.5, -2], 0);
    expect(given.type).toBe('float16');
    expect(await numbers(given)).toEqual([0.5, -2]);
  });

  test('must be as many as fit', () => {
    expect(() => filled('float32', [2, 3], 'numbers', [1, 2], 1)).toThrow(
      'input 1 must have 6 numbers for [2, 3], got 2',
    );
  });
});

describe('outputs of any program', () => {
  test('are told by numbers, and what is none is counted', () => {
    const facts = statistics([1, 5, 3, Number.NaN]);
    expect(facts).toMatchObject({ least: 1, most: 5, 'most at': 1, mean: 3 });
    expect(facts['not finite']).toBe(1);
    expect(statistics([2])).not.toHaveProperty('not finite');
  });

  test('are pictures where they look like one', () => {
    const values = Array.from({ length: 3 * 16 * 20 }, (_, at) => (at % 20) / 19);
    const facts = statistics(values);
    expect(asPicture(values, [1, 3, 16, 20], facts)).toMatchObject({
      width: 20,
      height: 16,
    });
    expect(asPicture(values, [3, 16, 20], facts)?.data[4 * 19]).toBe(255);
    expect(asPicture(values, [48, 20], facts)?.width).toBe(20);
    expect(asPicture(values, [2, 3, 8, 20], facts)).toBeUndefined();
    expect(asPicture(values, [960], facts)).toBeUndefined();
    // Numbers of any other size are stretched.
    const large = values.map((value) => value * 1000 - 300);
    const data = asPicture(large, [1, 3, 16, 20], statistics(large))?.data;
    expect([data?.[0], data?.[4 * 19]]).toEqual([0, 255]);
  });
});

describe('a picture in tiles', () => {
  /** Repeats every pixel, as a model that enlarges would. */
  const repeat = {
    sides: new Set<number>(),
    async execute(_: string, [given]: readonly unknown[]) {
      const input = given as Tensor;
      const [, , height = 0, width = 0] = input.dims;
      this.sides.add(height).add(width);
      const data = await numbers(input);
      const result = new Float32Array(data.length * 4);
      for (let at = 0; at < result.length; at++) {
        const [x, row] = [at % (2 * width), Math.floor(at / (2 * width))];
        const [y, channel] = [row % (2 * height), Math.floor(row / (2 * height))];
        result[at] = data[(channel * height + (y >> 1)) * width + (x >> 1)] as number;
      }
      return [new Tensor('float32', result, [1, 3, 2 * height, 2 * width])];
    },
  };

  test.each([
    [5, 9],
    [16, 40],
    [37, 41],
  ])('of %i by %i pixels has no seam', async (width, height) => {
    const data = new Uint8ClampedArray(width * height * 4);
    data.forEach((_, at) => {
      data[at] = at % 4 === 3 ? 255 : (at * 7) % 251;
    });
    const picture: Pixels = { width, height, data };
    const tile = { size: 32, step: 16, border: 4, times: 2 };
    const large = await enlarge(repeat, picture, {}, tile);
    expect([large.width, large.height]).toEqual([2 * width, 2 * height]);
    for (let y = 0; y < 2 * height; y++) {
      for (let x = 0; x < 2 * width; x++) {
        const from = ((y >> 1) * width + (x >> 1)) * 4;
        const at = (y * 2 * width + x) * 4;
        expect(large.data[at]).toBe(data[from]);
      }
    }
    expect([...repeat.sides].filter((side) => side % 16 || side > 32)).toEqual([]);
  });
});

test('notes are those that last', () => {
  const frames = (hertz: number, count: number, confidence = 0.9) =>
    Array.from({ length: count }, () => ({ hertz, confidence }));
  const heard = [
    ...frames(440, 5),
    ...frames(466, 1), // a slide
    ...frames(494, 4),
    ...frames(220, 6, 0.2), // noise
    ...frames(494, 3),
  ];
  expect(notesOf(heard)).toEqual(['A4', 'B4', 'B4']);
});

test('sizes and times can be read', () => {
  expect([bytes(2100), bytes(2.14e6), bytes(1.05e8)]).toEqual([
    '2.1 KB',
    '2.1 MB',
    '105 MB',
  ]);
  expect([duration(3.21), duration(321), duration(3210)]).toEqual([
    '3.2 ms',
    '321 ms',
    '3.21 s',
  ]);
});
