/** What is run: the gallery's models with inputs that are the same everywhere. */

/** What stands in an input. */
export type Fill =
  | { kind: 'waves' } // a smooth pattern in -1 to 1
  | { kind: 'tone' } // frames of a note of 440 Hz at 16 kHz
  | { kind: 'tokens'; from: number; to: number }
  | { kind: 'ones' }
  | { kind: 'count'; from: number };

export interface InputSpec {
  type: 'float32' | 'int64';
  dims: readonly number[];
  fill: Fill;
}

/** Software adapters get the small sizes, or nobody would wait for the end. */
export type Sizes = 'full' | 'small';

export interface BenchCase {
  name: string;
  /** The folder in models/. */
  model: string;
  title: string;
  inputs: Record<Sizes, readonly InputSpec[]>;
}

const picture = (height: number, width: number): InputSpec[] => [
  { type: 'float32', dims: [1, 3, height, width], fill: { kind: 'waves' } },
];

const sentences = (batch: number, length: number): InputSpec[] => [
  {
    type: 'int64',
    dims: [batch, length],
    fill: { kind: 'tokens', from: 1000, to: 30000 },
  },
  { type: 'int64', dims: [batch, length], fill: { kind: 'ones' } },
];

const tokens = (length: number, from: number, first: number): InputSpec[] => [
  {
    type: 'int64',
    dims: [1, length],
    fill: { kind: 'tokens', from: first, to: first + 10000 },
  },
  { type: 'int64', dims: [length], fill: { kind: 'count', from } },
];

const frames = (count: number): InputSpec[] => [
  { type: 'float32', dims: [count, 1024], fill: { kind: 'tone' } },
];

export const CASES: readonly BenchCase[] = [
  {
    name: 'classify',
    model: 'classify',
    title: 'EfficientNet-Lite0',
    inputs: { full: picture(224, 224), small: picture(224, 224) },
  },
  {
    name: 'cutout',
    model: 'cutout',
    title: 'U2-Netp',
    inputs: { full: picture(320, 320), small: picture(160, 160) },
  },
  {
    name: 'enlarge',
    model: 'enlarge',
    title: 'Real-ESRGAN animevideov3',
    inputs: { full: picture(128, 128), small: picture(16, 32) },
  },
  {
    name: 'search',
    model: 'search',
    title: 'all-MiniLM-L6-v2',
    inputs: { full: sentences(8, 64), small: sentences(8, 16) },
  },
  {
    name: 'pitch',
    model: 'pitch',
    title: 'CREPE tiny',
    inputs: { full: frames(64), small: frames(8) },
  },
  {
    name: 'story-prompt',
    model: 'story',
    title: 'stories15M, a prompt',
    inputs: { full: tokens(64, 0, 300), small: tokens(32, 0, 300) },
  },
  {
    name: 'story-token',
    model: 'story',
    title: 'stories15M, one token',
    inputs: { full: tokens(1, 128, 300), small: tokens(1, 128, 300) },
  },
  {
    name: 'chat-token',
    model: 'chat',
    title: 'SmolLM2-135M 4-bit, one token',
    inputs: { full: tokens(1, 128, 300), small: tokens(1, 128, 300) },
  },
];

export type InputData = Float32Array<ArrayBuffer> | BigInt64Array<ArrayBuffer>;

/** The elements of an input. */
export function elementsOf({ type, dims, fill }: InputSpec): InputData {
  const count = dims.reduce((product, extent) => product * extent, 1);
  const value = valuesOf(fill, dims);
  return type === 'float32'
    ? Float32Array.from({ length: count }, (_, index) => value(index))
    : BigInt64Array.from({ length: count }, (_, index) => BigInt(value(index)));
}

function valuesOf(fill: Fill, dims: readonly number[]): (index: number) => number {
  switch (fill.kind) {
    case 'waves':
      return (index) =>
        (Math.sin(index * 0.031) + Math.cos(index * 0.0017) + Math.sin(index * 1.7)) /
        3;
    case 'tone': {
      const frame = dims.at(-1) ?? 1;
      const turn = (2 * Math.PI * 440) / 16000;
      // Frames begin at other phases, so that they are not all the same.
      return (index) =>
        Math.sin((index % frame) * turn + Math.floor(index / frame)) * 0.5;
    }
    case 'tokens':
      // A multiplier without a pattern that repeats soon.
      return (index) => fill.from + ((index * 7919 + 17) % (fill.to - fill.from));
    case 'ones':
      return () => 1;
    case 'count':
      return (index) => fill.from + index;
  }
}

/** A shape as people write it. */
export function shapeText(dims: readonly number[]): string {
  return dims.join('x');
}
