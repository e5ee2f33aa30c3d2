/** From what a pitch model gives to notes: hertz, and how sure it is. */

import { WebGPUError } from '../errors';
import type { Module } from '../module';
import { Tensor } from '../tensor';
import { frames } from './features';

/** The pitch of one frame. */
export interface Pitch {
  hertz: number;
  /** From 0 to 1. */
  confidence: number;
}

const BINS = 360;
const CENTS_PER_BIN = 20;
const CENTS_OF_FIRST_BIN = 1997.3794084376191;

/**
 * The pitch of CREPE's 360 probabilities: the average of cents over the nine bins around
 * the largest, weighted by their probabilities.
 */
export function crepePitch(bins: ArrayLike<number>): Pitch {
  let best = 0;
  for (let bin = 1; bin < BINS; bin++) {
    if ((bins[bin] ?? 0) > (bins[best] ?? 0)) best = bin;
  }
  let sum = 0;
  let weights = 0;
  for (let bin = Math.max(0, best - 4); bin <= Math.min(BINS - 1, best + 4); bin++) {
    const weight = bins[bin] ?? 0;
    sum += weight * (CENTS_PER_BIN * bin + CENTS_OF_FIRST_BIN);
    weights += weight;
  }
  const cents = weights > 0 ? sum / weights : 0;
  return { hertz: 10 * 2 ** (cents / 1200), confidence: bins[best] ?? 0 };
}

const NAMES = ['C', 'C♯', 'D', 'D♯', 'E', 'F', 'F♯', 'G', 'G♯', 'A', 'A♯', 'B'];

/** The nearest note of equal temperament, and by how many cents it is missed. */
export function noteOf(hertz: number): { name: string; cents: number } {
  const midi = 69 + 12 * Math.log2(hertz / 440);
  const nearest = Math.round(midi);
  const name = NAMES[((nearest % 12) + 12) % 12] ?? '';
  return {
    name: `${name}${Math.floor(nearest / 12) - 1}`,
    cents: Math.round((midi - nearest) * 100),
  };
}

/** How sound is cut for a pitch model, and how many frames a call takes. */
export interface PitchSpec {
  frame: number;
  hop: number;
  normalize: boolean;
  most: number;
}

/** The pitch of every frame of a sound. */
export async function detectPitch(
  module: Pick<Module, 'execute'>,
  samples: Float32Array,
  spec: PitchSpec,
  onPart?: (done: number, total: number) => void,
): Promise<Pitch[]> {
  const { frame: size, hop, normalize } = spec;
  const { data, count } = frames(samples, { size, hop, normalize });
  const result: Pitch[] = [];
  for (let at = 0; at < count; at += spec.most) {
    const rows = Math.min(spec.most, count - at);
    const part = data.slice(at * size, (at + rows) * size);
    const results = await module.execute('forward', [
      new Tensor('float32', part, [rows, size]),
    ]);
    const [hertz, sure] = await Promise.all(results.map(readNumbers));
    for (let row = 0; row < rows; row++) {
      result.push({ hertz: hertz?.[row] ?? 0, confidence: sure?.[row] ?? 0 });
    }
    onPart?.(at + rows, count);
  }
  return result;
}

async function readNumbers(value: unknown): Promise<ArrayLike<number>> {
  if (value instanceof Tensor && value.type === 'float32') {
    return (await value.data()) as Float32Array;
  }
  throw new WebGPUError(
    'InvalidProgram',
    `detectPitch: a program must give tensors of float32, got ${typeof value}`,
  );
}
