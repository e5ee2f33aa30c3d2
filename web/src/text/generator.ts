/**
 * Text from a language model with its key and value caches on the GPU: prompts in pieces
 * that the program takes, then token by token, as a stream.
 */

import { Tokenizer } from '@huggingface/tokenizers';
import { WebGPUError } from '../errors';
import { fetchCard, fetchFile, fetchJson, folderUrl } from '../model_card';
import { type LoadOptions, Module } from '../module';
import { Tensor } from '../tensor';
import { ChatTemplate, type Message } from './chat_template';
import { Sampler, type SamplingOptions } from './sampling';
import { readTextConfig, type TextConfig } from './text_config';
import { TextStream } from './text_stream';

/** What of a `Module` is used here. */
export type TextModule = Pick<Module, 'execute' | 'meta' | 'methods' | 'resetState'> & {
  dispose?: () => void;
};

/** What of a tokenizer is used here. */
export interface TextTokenizer {
  encode(text: string, options?: { add_special_tokens?: boolean }): { ids: number[] };
  decode(ids: number[], options?: { skip_special_tokens?: boolean }): string;
}

/** How an answer is made. */
export interface GenerateOptions extends SamplingOptions {
  /** At most so many tokens; 256 unless said. */
  maxTokens?: number;
  /** Words that end the answer, and are not in it. */
  stop?: readonly string[];
  /** Ends the answer when it is aborted, without an error, as `stop()` does. */
  signal?: AbortSignal;
}

/** How long the last answer took. */
export interface GenerateStats {
  /** Tokens that were read, without those that the caches had. */
  promptTokens: number;
  promptMs: number;
  tokens: number;
  ms: number;
  /** Why it ended. */
  end: 'token' | 'word' | 'length' | 'stopped' | 'running';
}

/**
 * Generates text.
 *
 * ```ts
 * const generator = await TextGenerator.load('models/chat/');
 * for await (const text of generator.generate('Why is the sky blue?')) show(text);
 * ```
 */
export class TextGenerator {
  /** The tokens of the last answer. */
  tokens: number[] = [];
  /** Of the last answer, or of the one that runs. */
  stats: GenerateStats = newStats();

  /** Tokens whose keys and values are in the caches. */
  private cached: number[] = [];
  private running = false;
  private stopping = false;
  private readonly template: ChatTemplate | undefined;

  constructor(
    readonly module: TextModule,
    readonly tokenizer: TextTokenizer,
    readonly config: TextConfig,
  ) {
    this.template =
      config.chatTemplate === undefined
        ? undefined
        : new ChatTemplate(config.chatTemplate, config.templateValues);
  }

  /**
   * Fetches a folder with `model.json`, the program and `tokenizer.json`.
   * @param folder its address, with or without a slash at the end
   * @param options those of `Module.load`
   */
  static async load(
    folder: string | URL,
    options: LoadOptions = {},
  ): Promise<TextGenerator> {
    const base = folderUrl(folder);
    const card = await fetchCard(base, options.signal);
    const template = (card as { template?: { file: string } }).template;
    const config = readTextConfig(
      card,
      template && (await fetchText(new URL(template.file, base), options.signal)),
    );
    const file = new URL(card.tokenizer ?? 'tokenizer.json', base);
    const tokenizer = await loadTokenizer(file, options.signal);
    const program = new URL(card.program.file, base);
    const module = await Module.load(program.href, {
      integrity: card.program.integrity,
      ...options,
    });
    return new TextGenerator(module, tokenizer, config);
  }

  /**
   * The answer to a conversation, or what follows a plain text where the model has no
   * template, piece by piece. Turns that the caches hold already are not read again, so
   * a conversation is passed whole every time. One answer at a time.
   */
  async *generate(
    prompt: string | readonly Message[],
    options: GenerateOptions = {},
  ): AsyncGenerator<string, void, void> {
    if (this.running) {
      throw new WebGPUError(
        'InvalidState',
        'TextGenerator: the answer before must have ended, got one that runs;' +
          ' call stop() and take the rest of it',
      );
    }
    const sampler = new Sampler(options);
    const ids = this.encode(prompt);
    const limit = options.maxTokens ?? 256;
    this.checkLength(ids.length);
    this.running = true;
    this.stopping = false;
    this.tokens = [];
    this.stats = newStats();
    try {
      const started = performance.now();
      const first = await this.prefill(ids, sampler, options.signal);
      this.stats.promptMs = performance.now() - started;
      // A text goes on where the prompt ends; an answer is a text of its own.
      const before = this.template ? [] : ids.slice(-4);
      if (first === undefined) this.stats.end = 'stopped';
      else yield* this.decode(first, before, sampler, limit, options);
    } finally {
      this.running = false;
    }
  }

  /** Ends the answer that runs after the token that it is at. */
  stop(): void {
    this.stopping = true;
  }

  /** Forgets all that was read. */
  async reset(): Promise<void> {
    this.cached = [];
    await this.module.resetState();
  }

  /** Frees the GPU's memory. */
  dispose(): void {
    this.module.dispose?.();
  }

  /** The tokens that a prompt is for the model. */
  encode(prompt: string | readonly Message[]): number[] {
    const { system } = this.config;
    if (!this.template) {
      if (typeof prompt !== 'string') {
        throw new WebGPUError(
          'InvalidArgument',
          'TextGenerator: a model without a chat template must be given text, got' +
            ' a conversation',
        );
      }
      return this.tokenizer.encode(prompt).ids;
    }
    const turns: Message[] =
      typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : [...prompt];
    if (system !== undefined && turns[0]?.role !== 'system') {
      turns.unshift({ role: 'system', content: system });
    }
    const text = this.template.render(turns);
    return this.tokenizer.encode(text, { add_special_tokens: false }).ids;
  }

  private checkLength(count: number): void {
    if (count === 0 || count + 1 >= this.config.context) {
      throw new WebGPUError(
        'InvalidArgument',
        `TextGenerator: the conversation must have 1 to ${this.config.context - 2}` +
          ` tokens, got ${count}; start a new one`,
      );
    }
  }

  /** Reads what the caches do not hold; the token after it, unless it was stopped. */
  private async prefill(
    ids: number[],
    sampler: Sampler,
    signal: AbortSignal | undefined,
  ): Promise<number | undefined> {
    // The last token is read in any case: what follows it is what is asked for.
    const known = commonStart(this.cached, ids.slice(0, -1));
    this.cached.length = known;
    this.stats.promptTokens = ids.length - known;
    let next: number | undefined;
    for (let at = known; at < ids.length; at += this.config.longest) {
      if (this.stopping || signal?.aborted) return undefined;
      const part = ids.slice(at, at + this.config.longest);
      const last = at + this.config.longest >= ids.length;
      next = await this.forward(part, last ? sampler : undefined);
    }
    return next;
  }

  private async *decode(
    first: number,
    before: number[],
    sampler: Sampler,
    limit: number,
    options: GenerateOptions,
  ): AsyncGenerator<string, void, void> {
    const skip = { skip_special_tokens: true };
    const stream = new TextStream(
      (tokens) => this.tokenizer.decode(tokens, skip),
      options.stop,
      before,
    );
    const started = performance.now();
    const room = this.config.context - 2;
    let token = first;
    for (;;) {
      if (this.config.eos.includes(token)) this.stats.end = 'token';
      else if (this.tokens.length >= limit || this.cached.length >= room) {
        this.stats.end = 'length';
      } else if (this.stopping || options.signal?.aborted) this.stats.end = 'stopped';
      if (this.stats.end !== 'running') break;
      this.tokens.push(token);
      this.stats.tokens = this.tokens.length;
      const text = stream.push(token);
      if (text) yield text;
      if (stream.stopped) {
        this.stats.end = 'word';
        return;
      }
      token = (await this.forward([token], sampler)) as number;
      this.stats.ms = performance.now() - started;
    }
    const rest = stream.end();
    if (rest) yield rest;
  }

  /** Reads tokens into the caches; with a sampler, chooses the token that follows. */
  private async forward(
    tokens: number[],
    sampler: Sampler | undefined,
  ): Promise<number | undefined> {
    const method = this.config.method ?? 'forward';
    const start = this.cached.length;
    const ids = BigInt64Array.from(tokens, BigInt);
    const places = BigInt64Array.from(tokens, (_, index) => BigInt(start + index));
    const results = await this.module.execute(method, [
      new Tensor('int64', ids, [1, tokens.length]),
      this.takesNumber(method) ? start : new Tensor('int64', places, [tokens.length]),
    ]);
    this.cached.push(...tokens);
    try {
      return sampler && (await pick(results, sampler));
    } finally {
      for (const result of results) if (result instanceof Tensor) result.dispose();
    }
  }

  /** Whether the second input is the first token's position instead of all of them. */
  private takesNumber(method: string): boolean {
    return this.module.meta(method).inputs[1]?.kind === 'int';
  }
}

/** The next token: the program's own choice where the most likely one is wanted. */
async function pick(results: readonly unknown[], sampler: Sampler): Promise<number> {
  const [logits, best] = results;
  if (sampler.greedy && best instanceof Tensor && best.type === 'int64') {
    const [token] = await best.data();
    return Number(token);
  }
  if (!(logits instanceof Tensor) || logits.type !== 'float32') {
    const got = logits instanceof Tensor ? logits.type : typeof logits;
    throw new WebGPUError(
      'InvalidProgram',
      `TextGenerator: a program must give logits of float32 first, got ${got}`,
    );
  }
  const values = (await logits.data()) as Float32Array;
  const vocab = logits.dims.at(-1) ?? values.length;
  // The last row, where a program gives those of all tokens.
  return sampler.pick(values.subarray(values.length - vocab));
}

/** A tokenizer of Hugging Face's `tokenizer.json`. */
export async function loadTokenizer(
  url: string | URL,
  signal?: AbortSignal,
): Promise<Tokenizer> {
  const content = await fetchJson(url, signal);
  return new Tokenizer(content, { clean_up_tokenization_spaces: false });
}

async function fetchText(url: URL, signal?: AbortSignal): Promise<string> {
  return (await fetchFile(url, signal)).text();
}

/** How many tokens two rows have in common at their start. */
export function commonStart(a: readonly number[], b: readonly number[]): number {
  let count = 0;
  while (count < a.length && count < b.length && a[count] === b[count]) count++;
  return count;
}

function newStats(): GenerateStats {
  return { promptTokens: 0, promptMs: 0, tokens: 0, ms: 0, end: 'running' };
}
