/** Sentences as vectors, and how near two of them are. */

import { WebGPUError } from '../errors';
import type { Module } from '../module';
import { Tensor } from '../tensor';
import type { TextTokenizer } from './generator';

/** The largest call that a program takes. */
export interface EmbedLimits {
  batch: number;
  /** Tokens of a sentence; longer ones are cut. */
  length: number;
}

/** A vector for each sentence, as many in a call as the program takes. */
export async function embed(
  module: Pick<Module, 'execute'>,
  tokenizer: TextTokenizer,
  sentences: readonly string[],
  limits: EmbedLimits,
  signal?: AbortSignal,
): Promise<Float32Array[]> {
  const result: Float32Array[] = [];
  for (let at = 0; at < sentences.length; at += limits.batch) {
    signal?.throwIfAborted();
    const rows = sentences
      .slice(at, at + limits.batch)
      .map((sentence) => cutTokens(tokenizer.encode(sentence).ids, limits.length));
    const { ids, mask, dims } = padTokens(rows);
    const [vectors] = await module.execute('forward', [
      new Tensor('int64', ids, dims),
      new Tensor('int64', mask, dims),
    ]);
    if (!(vectors instanceof Tensor) || vectors.type !== 'float32') {
      throw new WebGPUError(
        'InvalidProgram',
        `embed: a program must give vectors of float32, got ${typeof vectors}`,
      );
    }
    const values = (await vectors.data()) as Float32Array;
    const width = values.length / rows.length;
    rows.forEach((_, row) => {
      result.push(values.slice(row * width, (row + 1) * width));
    });
  }
  return result;
}

/** At most so many tokens; the last one, which ends every sentence, stays the last. */
export function cutTokens(ids: readonly number[], length: number): number[] {
  if (ids.length <= length) return [...ids];
  return [...ids.slice(0, length - 1), ids[ids.length - 1] ?? 0];
}

/** Rows of one length, and 1 for every token, 0 for every pad. */
export function padTokens(rows: readonly (readonly number[])[]): {
  ids: BigInt64Array<ArrayBuffer>;
  mask: BigInt64Array<ArrayBuffer>;
  dims: [number, number];
} {
  const length = Math.max(1, ...rows.map((row) => row.length));
  const ids = new BigInt64Array(rows.length * length);
  const mask = new BigInt64Array(rows.length * length);
  rows.forEach((row, index) => {
    row.forEach((token, place) => {
      ids[index * length + place] = BigInt(token);
      mask[index * length + place] = 1n;
    });
  });
  return { ids, mask, dims: [rows.length, length] };
}

/** The cosine of the angle between two vectors: 1 for the same direction. */
export function cosine(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let [dot, lengthA, lengthB] = [0, 0, 0];
  for (let index = 0; index < a.length; index++) {
    const [x, y] = [a[index] ?? 0, b[index] ?? 0];
    dot += x * y;
    lengthA += x * x;
    lengthB += y * y;
  }
  return dot / (Math.sqrt(lengthA * lengthB) || 1);
}

/** The places of the largest numbers, the largest first. */
export function largest(
  values: ArrayLike<number>,
  count: number,
): { index: number; value: number }[] {
  return Array.from(values, (value, index) => ({ index, value }))
    .sort((a, b) => b.value - a.value || a.index - b.index)
    .slice(0, count);
}
