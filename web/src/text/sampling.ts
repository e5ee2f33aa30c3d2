/**
 * From logits to the next token: the most likely one, or one drawn at random, in the
 * same order for the same seed on every machine.
 */

import { WebGPUError } from '../errors';

/** How the next token is chosen. */
export interface SamplingOptions {
  /** 0, the default, takes the most likely token; 1 draws as the model says. */
  temperature?: number;
  /** Only the likeliest tokens whose probabilities add up to this are drawn from. */
  topP?: number;
  /** Only so many of the likeliest tokens are drawn from. */
  topK?: number;
  /** The same seed draws the same tokens. Without one, every run differs. */
  seed?: number;
}

/** The place of the largest number; the first of equals, as torch.argmax has it. */
export function argmax(values: ArrayLike<number>): number {
  let best = 0;
  for (let index = 1; index < values.length; index++) {
    // A NaN never wins, but an index is always given.
    if ((values[index] ?? 0) > (values[best] ?? 0)) best = index;
  }
  return best;
}

/** Probabilities of logits that were divided by the temperature. */
export function softmax(logits: ArrayLike<number>, temperature = 1): Float64Array {
  const result = new Float64Array(logits.length);
  let largest = Number.NEGATIVE_INFINITY;
  for (let index = 0; index < logits.length; index++) {
    largest = Math.max(largest, logits[index] ?? largest);
  }
  let sum = 0;
  for (let index = 0; index < logits.length; index++) {
    const value = Math.exp(((logits[index] ?? 0) - largest) / temperature);
    result[index] = value;
    sum += value;
  }
  for (let index = 0; index < result.length; index++) {
    result[index] = (result[index] ?? 0) / sum;
  }
  return result;
}

/** Numbers in [0, 1), the same for the same seed (mulberry32). */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** Chooses tokens, one call after another. */
export class Sampler {
  private readonly temperature: number;
  private readonly topP: number;
  private readonly topK: number;
  private readonly next: () => number;

  constructor(options: SamplingOptions = {}) {
    this.temperature = options.temperature ?? 0;
    this.topP = options.topP ?? 1;
    this.topK = options.topK ?? Number.POSITIVE_INFINITY;
    require(this.temperature >= 0, 'temperature', 'at least 0', this.temperature);
    require(this.topP > 0 && this.topP <= 1, 'topP', 'in (0, 1]', this.topP);
    require(this.topK >= 1, 'topK', 'at least 1', this.topK);
    this.next = random(options.seed ?? Math.floor(Math.random() * 2 ** 32));
  }

  /** Whether nothing is drawn: the most likely token is taken. */
  get greedy(): boolean {
    return this.temperature === 0 || this.topK === 1;
  }

  /** The token that follows, by the logits of all tokens. */
  pick(logits: ArrayLike<number>): number {
    if (this.greedy) return argmax(logits);
    const probabilities = softmax(logits, this.temperature);
    const nucleus = this.nucleus(probabilities);
    let sum = 0;
    for (const token of nucleus) sum += probabilities[token] ?? 0;
    let rest = this.next() * sum;
    for (const token of nucleus) {
      rest -= probabilities[token] ?? 0;
      if (rest < 0) return token;
    }
    // Rounding may leave a rest that is as good as 0.
    return nucleus[nucleus.length - 1] ?? argmax(logits);
  }

  /** The tokens that are drawn from, the likeliest first. */
  private nucleus(probabilities: Float64Array): number[] {
    // All tokens below this together are less than what topP leaves out, so they need
    // no sorting: a vocabulary is large, and few of its tokens are likely.
    const least = (1 - this.topP) / probabilities.length;
    const tokens: number[] = [];
    for (let index = 0; index < probabilities.length; index++) {
      if ((probabilities[index] ?? 0) > least) tokens.push(index);
    }
    tokens.sort((a, b) => (probabilities[b] ?? 0) - (probabilities[a] ?? 0) || a - b);
    let sum = 0;
    let count = 0;
    for (const token of tokens) {
      if (count >= this.topK || (count > 0 && sum >= this.topP)) break;
      sum += probabilities[token] ?? 0;
      count++;
    }
    return tokens.slice(0, count);
  }
}

function require(holds: boolean, name: string, what: string, value: number): void {
  if (!holds) {
    throw new WebGPUError(
      'InvalidArgument',
      `TextGenerator: ${name} must be ${what}, got ${value}`,
    );
  }
}
