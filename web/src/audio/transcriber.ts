/** Speech to text, token by token, by a program like Whisper's: `encode`, `decode`. */

import { WebGPUError } from '../errors';
import type { ModelCard } from '../model_card';
import type { Module } from '../module';
import { Tensor } from '../tensor';
import { TextStream } from '../text/text_stream';
import { padOrTrim } from './features';

/** What must be known of a model. */
export interface TranscriberConfig {
  rate: number;
  /** Sound has a multiple of so many samples, between these. */
  multiple: number;
  least: number;
  most: number;
  /** Samples of silence behind speech. */
  silence: number;
  /** Tokens before every text. */
  first: readonly number[];
  /** Tokens that end a text. */
  ends: readonly number[];
  /** How many tokens a text may have. */
  context: number;
}

/** Reads what `model.json` says of a transcriber. */
export function readTranscriberConfig(card: ModelCard): TranscriberConfig {
  const port = card.methods.encode?.inputs[0];
  const sound = port?.sound as
    | { rate: number; multiple: number; silence: number }
    | undefined;
  const extent = port?.dims[1];
  const generation = card.generation as
    | { context: number; first: number[]; ends: number[] }
    | undefined;
  if (!sound || typeof extent !== 'object' || !generation) {
    throw new WebGPUError(
      'NotSupported',
      `model.json: a transcriber must say its sound and generation, got ${card.name}` +
        ' without them; export the model again',
    );
  }
  return { ...sound, least: extent.min, most: extent.max, ...generation };
}

/** Writes down what is said. */
export class Transcriber {
  /** The tokens of the last text. */
  tokens: number[] = [];

  constructor(
    readonly module: Pick<Module, 'execute'>,
    readonly decodeTokens: (tokens: number[]) => string,
    readonly config: TranscriberConfig,
  ) {}

  /**
   * The text of speech, piece by piece. Long speech is cut where it is quietest.
   * Ends without an error when the signal is aborted.
   */
  async *transcribe(
    samples: Float32Array,
    signal?: AbortSignal,
  ): AsyncGenerator<string, void, void> {
    this.tokens = [];
    const { most, silence, rate } = this.config;
    for (const part of cutSpeech(samples, most - silence, rate)) {
      if (signal?.aborted) return;
      yield* this.part(part, signal);
    }
  }

  private async *part(
    samples: Float32Array,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<string, void, void> {
    const { first, ends, context } = this.config;
    const length = paddedLength(samples.length, this.config);
    const sound = new Tensor('float32', padOrTrim(samples, length), [1, length]);
    const heard = await this.module.execute('encode', [sound]);
    const stream = new TextStream(this.decodeTokens);
    try {
      let token = first[0] ?? 0;
      for (let position = 0; position < context && !signal?.aborted; position++) {
        const results = await this.module.execute('decode', [
          new Tensor('int64', BigInt64Array.of(BigInt(token)), [1, 1]),
          new Tensor('int64', BigInt64Array.of(BigInt(position)), [1]),
          ...heard,
        ]);
        const given = first[position + 1];
        token = given ?? (await readToken(results[0]));
        if (given !== undefined) {
          for (const result of results) if (result instanceof Tensor) result.dispose();
          continue;
        }
        if (ends.includes(token)) break;
        this.tokens.push(token);
        const text = stream.push(token);
        if (text) yield text;
      }
      const rest = stream.end();
      if (rest) yield rest;
    } finally {
      for (const tensor of heard) if (tensor instanceof Tensor) tensor.dispose();
    }
  }
}

async function readToken(result: unknown): Promise<number> {
  if (!(result instanceof Tensor)) {
    throw new WebGPUError(
      'InvalidProgram',
      `Transcriber: decode must give a token as a tensor, got ${typeof result}`,
    );
  }
  const [token] = await result.data();
  return Number(token);
}

/** How many samples a sound has with the silence that it needs. */
export function paddedLength(
  samples: number,
  config: Pick<TranscriberConfig, 'multiple' | 'silence' | 'least' | 'most'>,
): number {
  const { multiple, silence, least, most } = config;
  const wanted = Math.ceil((samples + silence) / multiple) * multiple;
  return Math.min(Math.max(wanted, least), most);
}

/** Parts of at most `longest` samples, cut at the quietest place of the last quarter. */
export function cutSpeech(
  samples: Float32Array,
  longest: number,
  rate: number,
): Float32Array[] {
  const result: Float32Array[] = [];
  let start = 0;
  const window = Math.max(1, Math.round(rate / 10));
  while (samples.length - start > longest) {
    let [quietest, least] = [start + longest, Number.POSITIVE_INFINITY];
    const from = start + Math.floor(longest * 0.75);
    for (let at = from; at + window <= start + longest; at += window) {
      let energy = 0;
      for (let n = at; n < at + window; n++) energy += (samples[n] as number) ** 2;
      if (energy <= least) [quietest, least] = [at + (window >> 1), energy];
    }
    result.push(samples.subarray(start, quietest));
    start = quietest;
  }
  result.push(samples.subarray(start));
  return result;
}
