import { describe, expect, test } from 'vitest';
import { Tensor } from '../src/tensor';
import {
  argmax,
  ChatTemplate,
  cosine,
  cutTokens,
  embed,
  largest,
  padTokens,
  readTextConfig,
  Sampler,
  softmax,
  TextGenerator,
  type TextModule,
  TextStream,
} from '../src/text';

describe('the next token', () => {
  test('is the most likely one at temperature 0, the first of equals', () => {
    expect(argmax([1, 3, 3, 2])).toBe(1);
    expect(new Sampler().pick(Float32Array.of(-1, 4, 2))).toBe(1);
  });

  test('is drawn as often as it is likely', () => {
    const sampler = new Sampler({ temperature: 1, seed: 7 });
    const counts = [0, 0, 0];
    const logits = [Math.log(0.5), Math.log(0.3), Math.log(0.2)];
    for (let n = 0; n < 20000; n++) {
      const token = sampler.pick(logits);
      counts[token] = (counts[token] ?? 0) + 1 / 20000;
    }
    expect(counts[0]).toBeCloseTo(0.5, 1.5);
    expect(counts[1]).toBeCloseTo(0.3, 1.5);
  });

  test('is the same for the same seed', () => {
    const draw = (seed: number) => {
      const sampler = new Sampler({ temperature: 2, seed });
      return Array.from({ length: 30 }, () => sampler.pick([1, 2, 3, 4, 5]));
    };
    expect(draw(3)).toEqual(draw(3));
    expect(draw(3)).not.toEqual(draw(4));
  });

  test('comes from the likeliest ones only', () => {
    const logits = [0.5, 0.3, 0.15, 0.05].map(Math.log);
    const drawn = (options: object) => {
      const sampler = new Sampler({ temperature: 1, seed: 1, ...options });
      return new Set(Array.from({ length: 500 }, () => sampler.pick(logits)));
    };
    expect(drawn({ topP: 0.7 })).toEqual(new Set([0, 1]));
    expect(drawn({ topK: 3 })).toEqual(new Set([0, 1, 2]));
    expect(drawn({ topP: 0.01 })).toEqual(new Set([0]));
  });

  test('large logits do not overflow', () => {
    expect([...softmax([1e4, 1e4])]).toEqual([0.5, 0.5]);
  });

  test('options out of range are named', () => {
    expect(() => new Sampler({ temperature: -1 })).toThrow('at least 0, got -1');
    expect(() => new Sampler({ topP: 0 })).toThrow('topP must be in (0, 1], got 0');
  });
});

describe('a stream of text', () => {
  const pieces = ['He', 'llo', ' wor', 'ld'];
  const decode = (tokens: number[]) => tokens.map((token) => pieces[token]).join('');
  const take = (stream: TextStream, tokens: number[]) =>
    tokens.map((token) => stream.push(token));

  test('gives each token its text', () => {
    expect(take(new TextStream(decode), [0, 1, 2, 3])).toEqual(pieces);
  });

  test('never asks a tokenizer for the text of no tokens', () => {
    const strict = (tokens: number[]) => {
      if (tokens.length === 0) throw new Error('token_ids must be a non-empty array');
      return decode(tokens);
    };
    expect(take(new TextStream(strict), [0, 1, 2, 3])).toEqual(pieces);
    expect(new TextStream(strict).end()).toBe('');
  });

  test('waits for characters that need several tokens', () => {
    const bytes = new TextEncoder().encode('a😀b');
    const text = new TextDecoder();
    const stream = new TextStream((tokens) => text.decode(Uint8Array.from(tokens)));
    const given = [...bytes].map((byte) => stream.push(byte));
    expect(given).toEqual(['a', '', '', '', '😀', 'b']);
    expect(stream.end()).toBe('');
  });

  test('gives at its end what a character lacked', () => {
    const text = new TextDecoder();
    const stream = new TextStream((tokens) => text.decode(Uint8Array.from(tokens)));
    expect([stream.push(0x61), stream.push(0xf0)]).toEqual(['a', '']);
    expect(stream.end()).toBe('\ufffd');
  });

  test('ends before a stop word, even one in several tokens', () => {
    const stream = new TextStream(decode, ['o wo']);
    expect(take(stream, [0, 1, 2])).toEqual(['He', 'll', '']);
    expect(stream.stopped).toBe(true);
    expect(stream.push(3) + stream.end()).toBe('');
  });

  test('gives what only looked like a stop word', () => {
    const stream = new TextStream(decode, ['lox']);
    expect(take(stream, [0, 1]).join('') + stream.end()).toBe('Hello');
  });
});

const CHATML =
  "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + " +
  "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

test('a template renders a conversation', () => {
  const template = new ChatTemplate(CHATML);
  expect(template.render([{ role: 'user', content: 'Hi' }])).toBe(
    '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n',
  );
  expect(() => new ChatTemplate('{% if %}')).toThrow('must be Jinja');
});

/** A model whose next token is the sum of all tokens it has seen, modulo its size. */
class Sums {
  readonly methods = ['forward'];
  readonly calls: { tokens: number[]; positions: number[] }[] = [];
  private readonly cache: number[] = [];
  resets = 0;

  meta() {
    return { inputs: [{ kind: 'tensor' }, { kind: 'tensor' }], outputs: [] };
  }

  async execute(_: string, inputs: unknown[]) {
    const [tokens, positions] = await Promise.all(
      inputs.map(async (input) => Array.from(await (input as Tensor).data(), Number)),
    );
    this.calls.push({ tokens: tokens ?? [], positions: positions ?? [] });
    positions?.forEach((at, index) => {
      this.cache[at] = tokens?.[index] ?? 0;
    });
    const seen = this.cache.slice(0, (positions?.at(-1) ?? 0) + 1);
    const logits = new Float32Array(64);
    logits[seen.reduce((a, b) => a + b, 0) % 64] = 1;
    return [new Tensor('float32', logits, [1, 1, 64])];
  }

  resetState() {
    this.resets++;
  }
}

const letters = {
  encode: (text: string) => ({ ids: [...text].map((c) => c.charCodeAt(0) % 64) }),
  decode: (ids: number[]) => ids.map((id) => String.fromCharCode(64 + id)).join(''),
};

function generator(model: Sums, more: object = {}) {
  const config = { eos: [], context: 40, longest: 4, ...more };
  return new TextGenerator(model as unknown as TextModule, letters, config);
}

async function all(stream: AsyncIterable<string>): Promise<string> {
  let text = '';
  for await (const piece of stream) text += piece;
  return text;
}

describe('a generator', () => {
  test('reads the prompt in pieces, then goes on token by token', async () => {
    const model = new Sums();
    const text = generator(model);
    await all(text.generate('ABCDEF', { maxTokens: 3 }));
    expect(model.calls.map((call) => call.tokens.length)).toEqual([4, 2, 1, 1, 1]);
    expect(model.calls[1]?.positions).toEqual([4, 5]);
    expect(text.tokens).toEqual([21, 42, 20]);
    expect(text.stats.end).toBe('length');
    expect(text.stats.promptTokens).toBe(6);
  });

  test('does not read again what its caches hold', async () => {
    const model = new Sums();
    const text = generator(model);
    await all(text.generate('ABCDEF', { maxTokens: 1 }));
    const before = model.calls.length;
    await all(text.generate('ABCDEZ', { maxTokens: 1 }));
    expect(model.calls[before]).toEqual({ tokens: [26], positions: [5] });
    const fresh = generator(new Sums());
    await all(fresh.generate('ABCDEZ', { maxTokens: 1 }));
    expect(text.tokens).toEqual(fresh.tokens);
  });

  test('forgets when it is told to', async () => {
    const model = new Sums();
    const text = generator(model);
    await all(text.generate('AB', { maxTokens: 1 }));
    await text.reset();
    expect(model.resets).toBe(1);
    const before = model.calls.length;
    await all(text.generate('AB', { maxTokens: 1 }));
    expect(model.calls[before]?.positions).toEqual([0, 1]);
  });

  test('ends at a token of the end, and when it is stopped', async () => {
    const ended = generator(new Sums(), { eos: [42] });
    await all(ended.generate('ABCDEF'));
    expect([ended.tokens, ended.stats.end]).toEqual([[21], 'token']);
    const stopped = generator(new Sums());
    for await (const _ of stopped.generate('ABC')) stopped.stop();
    expect([stopped.tokens.length, stopped.stats.end]).toEqual([1, 'stopped']);
    const aborted = generator(new Sums());
    await all(aborted.generate('ABC', { signal: AbortSignal.abort() }));
    expect([aborted.tokens.length, aborted.stats.end]).toEqual([0, 'stopped']);
  });

  test('can be used again after its reader has left', async () => {
    const text = generator(new Sums());
    for await (const _ of text.generate('ABC')) break;
    expect(await all(text.generate('ABC', { maxTokens: 1 }))).toHaveLength(1);
  });

  test('makes one answer at a time', async () => {
    const text = generator(new Sums());
    const first = text.generate('ABC');
    await first.next();
    await expect(text.generate('D').next()).rejects.toThrow('got one that runs');
  });

  test('says how long a conversation may be', async () => {
    const text = generator(new Sums());
    const long = 'A'.repeat(39);
    await expect(all(text.generate(long))).rejects.toThrow('1 to 38 tokens, got 39');
    await all(text.generate('A'.repeat(36), { maxTokens: 50 }));
    expect(text.stats.end).toBe('length');
  });

  test('puts the system turn before a conversation', () => {
    const text = generator(new Sums(), { chatTemplate: CHATML, system: 'S' });
    const rendered = new ChatTemplate(CHATML).render([
      { role: 'system', content: 'S' },
      { role: 'user', content: 'U' },
    ]);
    expect(text.encode('U')).toEqual(letters.encode(rendered).ids);
    const plain = generator(new Sums());
    expect(() => plain.encode([])).toThrow('must be given text, got a conversation');
  });
});

test('a card without the sizes of a language model is refused', () => {
  expect(() => readTextConfig({ name: 'cat' })).toThrow('got cat without them');
});

test('vectors of the same direction have cosine 1', () => {
  expect(cosine([1, 2], [2, 4])).toBeCloseTo(1);
  expect(cosine([1, 0], [0, 3])).toBe(0);
  expect(largest([3, 9, 5], 2).map(({ index }) => index)).toEqual([1, 2]);
});

test('sentences are cut and padded', () => {
  expect(cutTokens([1, 5, 6, 7, 2], 3)).toEqual([1, 5, 2]);
  const { ids, mask, dims } = padTokens([[1, 2, 3], [4]]);
  expect(dims).toEqual([2, 3]);
  expect([...ids]).toEqual([1n, 2n, 3n, 4n, 0n, 0n]);
  expect([...mask]).toEqual([1n, 1n, 1n, 1n, 0n, 0n]);
});

test('many sentences go through in calls that the program takes', async () => {
  const sizes: number[][] = [];
  const module = {
    async execute(_: string, [ids]: unknown[]) {
      const { dims } = ids as Tensor;
      sizes.push([...dims]);
      const rows = dims[0] ?? 0;
      return [
        new Tensor(
          'float32',
          Float32Array.from({ length: rows * 2 }, (_, n) => n),
          [rows, 2],
        ),
      ];
    },
  } as unknown as TextModule;
  const vectors = await embed(module, letters, ['AB', 'A', 'ABCDEF'], {
    batch: 2,
    length: 4,
  });
  expect(sizes).toEqual([
    [2, 2],
    [1, 4],
  ]);
  expect(vectors.map((vector) => [...vector])).toEqual([
    [0, 1],
    [2, 3],
    [0, 1],
  ]);
});

test('a template and its values come from the card', () => {
  const generation = { context: 8, prompt: 4, ends: [2] };
  const template = { file: 'a.jinja', values: { bos_token: '<s>' } };
  expect(readTextConfig({ name: 'chat', generation, template }, 'T')).toEqual({
    eos: [2],
    context: 8,
    longest: 4,
    chatTemplate: 'T',
    templateValues: { bos_token: '<s>' },
  });
});
