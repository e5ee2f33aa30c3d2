/** What speech and pitch models want of sound: frames, and log-mel spectrograms. */

import { WebGPUError } from '../errors';
import { inTurns } from '../image/turns';
import { Fft } from './fft';

/** Sound as models take it: one channel, numbers from -1 to 1. */
export interface Sound {
  samples: Float32Array;
  /** Samples per second. */
  rate: number;
}

/** The first samples, or all with silence behind them. */
export function padOrTrim(
  samples: Float32Array,
  length: number,
): Float32Array<ArrayBuffer> {
  const result = new Float32Array(length);
  result.set(samples.subarray(0, length));
  return result;
}

export interface FrameSpec {
  /** Samples in a frame. */
  size: number;
  /** Samples from the start of one frame to that of the next. */
  hop: number;
  /** Whether frames are centred on their times, with silence before the first. */
  center?: boolean;
  /** Whether each frame is made to have mean 0 and deviation 1. */
  normalize?: boolean;
}

/** Frames in rows, one after another, and how many. */
export function frames(
  samples: Float32Array,
  spec: FrameSpec,
): { data: Float32Array<ArrayBuffer>; count: number } {
  const { size, hop } = spec;
  const before = spec.center ? size >> 1 : 0;
  const count = spec.center
    ? 1 + Math.floor(samples.length / hop)
    : Math.max(1, 1 + Math.floor((samples.length - size) / hop));
  const data = new Float32Array(count * size);
  for (let frame = 0; frame < count; frame++) {
    const start = frame * hop - before;
    const row = data.subarray(frame * size, (frame + 1) * size);
    const from = Math.max(start, 0);
    const to = Math.min(start + size, samples.length);
    if (to > from) row.set(samples.subarray(from, to), from - start);
    if (spec.normalize) normalize(row);
  }
  return { data, count };
}

/** Mean 0 and deviation 1 (with n - 1, as torch.std), in place. */
export function normalize(row: Float32Array): void {
  let sum = 0;
  for (const value of row) sum += value;
  const mean = sum / row.length;
  let squares = 0;
  for (const value of row) squares += (value - mean) ** 2;
  const deviation = Math.max(1e-10, Math.sqrt(squares / Math.max(1, row.length - 1)));
  for (let index = 0; index < row.length; index++) {
    row[index] = ((row[index] as number) - mean) / deviation;
  }
}

export interface MelSpec {
  /** Samples of the window, and from one to the next. */
  window: number;
  hop: number;
  mels: number;
  rate: number;
}

/** What Whisper was trained with. */
export const WHISPER_MEL: MelSpec = { window: 400, hop: 160, mels: 80, rate: 16000 };

/**
 * The log-mel spectrogram [mels, frames] as Whisper computes it: Hann windows centred on
 * their times with the sound reflected at its ends, power, Slaney's mel filters, log10,
 * at most 8 below the largest, and (x + 4) / 4.
 */
export async function logMel(
  samples: Float32Array,
  spec: MelSpec = WHISPER_MEL,
): Promise<{ data: Float32Array<ArrayBuffer>; dims: [number, number] }> {
  const { window, hop, mels } = spec;
  const half = window >> 1;
  if (samples.length <= half) {
    throw new WebGPUError(
      'InvalidArgument',
      `logMel: sound must have more than ${half} samples, got ${samples.length}`,
    );
  }
  const count = Math.floor(samples.length / hop);
  const filters = melFilters(spec);
  const hann = Float64Array.from(
    { length: window },
    (_, n) => 0.5 - 0.5 * Math.cos((2 * Math.PI * n) / window),
  );
  const fft = new Fft(window);
  const row = new Float64Array(window);
  const power = new Float64Array(half + 1);
  const data = new Float32Array(mels * count);
  let largest = Number.NEGATIVE_INFINITY;
  await inTurns(count, (frame) => {
    for (let n = 0; n < window; n++) {
      const at = mirror(frame * hop + n - half, samples.length);
      row[n] = (samples[at] as number) * (hann[n] as number);
    }
    fft.power(row, power);
    filters.forEach(({ first, values }, mel) => {
      let sum = 0;
      for (let k = 0; k < values.length; k++) {
        sum += (values[k] as number) * (power[first + k] as number);
      }
      const value = Math.log10(Math.max(sum, 1e-10));
      data[mel * count + frame] = value;
      largest = Math.max(largest, value);
    });
  });
  for (let index = 0; index < data.length; index++) {
    data[index] = (Math.max(data[index] as number, largest - 8) + 4) / 4;
  }
  return { data, dims: [mels, count] };
}

/** Triangles on Slaney's mel scale, each of area 1: the non-zero weights of each. */
export function melFilters(spec: MelSpec): { first: number; values: Float64Array }[] {
  const bins = (spec.window >> 1) + 1;
  const top = toMel(spec.rate / 2);
  const edges = Array.from({ length: spec.mels + 2 }, (_, index) =>
    toHertz((top * index) / (spec.mels + 1)),
  );
  return Array.from({ length: spec.mels }, (_, mel) => {
    const [low = 0, mid = 0, high = 0] = edges.slice(mel, mel + 3);
    const all = Float64Array.from({ length: bins }, (_, bin) => {
      const hertz = (bin * spec.rate) / spec.window;
      const rise = (hertz - low) / (mid - low);
      const fall = (high - hertz) / (high - mid);
      return (Math.max(0, Math.min(rise, fall)) * 2) / (high - low);
    });
    const first = all.findIndex((value) => value > 0);
    if (first < 0) return { first: 0, values: new Float64Array(0) };
    const last = all.findLastIndex((value) => value > 0);
    return { first, values: all.slice(first, last + 1) };
  });
}

// Linear below 1000 Hz, logarithmic above.
const LINEAR = 200 / 3;
const STEP = Math.log(6.4) / 27;

function toMel(hertz: number): number {
  return hertz < 1000 ? hertz / LINEAR : 15 + Math.log(hertz / 1000) / STEP;
}

function toHertz(mel: number): number {
  return mel < 15 ? mel * LINEAR : 1000 * Math.exp(STEP * (mel - 15));
}

function mirror(index: number, length: number): number {
  const folded = index < 0 ? -index : index;
  return folded < length ? folded : Math.max(0, 2 * (length - 1) - folded);
}
