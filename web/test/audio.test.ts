import { expect, test } from 'vitest';
import {
  crepePitch,
  cutSpeech,
  detectPitch,
  frames,
  logMel,
  mix,
  normalize,
  noteOf,
  paddedLength,
  padOrTrim,
  refusal,
  Transcriber,
  toWav,
} from '../src/audio';
import { melFilters } from '../src/audio/features';
import { Fft } from '../src/audio/fft';
import { Tensor } from '../src/tensor';

test('a transform of any length is that of its definition', () => {
  for (const size of [1, 7, 12, 25]) {
    const input = Float64Array.from({ length: size }, (_, n) => Math.sin(n * n));
    const output = new Float64Array((size >> 1) + 1);
    new Fft(size).power(input, output);
    for (let k = 0; k < output.length; k++) {
      let [re, im] = [0, 0];
      input.forEach((value, n) => {
        re += value * Math.cos((2 * Math.PI * k * n) / size);
        im -= value * Math.sin((2 * Math.PI * k * n) / size);
      });
      expect(output[k]).toBeCloseTo(re * re + im * im, 9);
    }
  }
});

test('a log-mel spectrogram is as Whisper computes it', async () => {
  const samples = Float32Array.from(
    { length: 1600 },
    (_, n) =>
      0.5 * Math.sin((2 * Math.PI * 440 * n) / 16000) + 0.1 * Math.cos(n * n * 0.001),
  );
  const { data, dims } = await logMel(samples);
  expect(dims).toEqual([80, 10]);
  // By torch.stft and whisper's own filters.
  expect(data[0]).toBeCloseTo(1.1025, 3);
  expect(data[10 * 10 + 5]).toBeCloseTo(1.3487, 3);
  expect(data[79 * 10 + 9]).toBeCloseTo(0.7496, 3);
  expect(data.reduce((a, b) => a + b, 0) / data.length).toBeCloseTo(-0.0722, 3);
  await expect(logMel(new Float32Array(200))).rejects.toThrow('more than 200 samples');
});

test('mel filters are those of Slaney', () => {
  const filters = melFilters({ window: 400, hop: 160, mels: 80, rate: 16000 });
  expect(filters[3]?.first).toBe(3);
  expect([...(filters[3]?.values ?? [])].map((v) => v.toFixed(4))).toEqual([
    '0.0060',
    '0.0189',
  ]);
  expect(filters[79]?.values.reduce((a, b) => a + b, 0)).toBeCloseTo(0.0249, 4);
});

test('frames overlap, and the last one is whole', () => {
  const samples = Float32Array.from({ length: 10 }, (_, n) => n);
  const plain = frames(samples, { size: 4, hop: 3 });
  expect([plain.count, ...plain.data]).toEqual([3, 0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9]);
  const centred = frames(samples.subarray(0, 4), { size: 4, hop: 2, center: true });
  expect([centred.count, ...centred.data.slice(0, 4)]).toEqual([3, 0, 0, 0, 1]);
  expect(frames(samples.subarray(0, 2), { size: 4, hop: 3 }).count).toBe(1);
});

test('a frame is made to have mean 0 and deviation 1', () => {
  const row = Float32Array.of(1, 2, 3);
  normalize(row);
  expect([...row]).toEqual([-1, 0, 1]);
  const silent = new Float32Array(3);
  normalize(silent);
  expect([...silent]).toEqual([0, 0, 0]);
});

test('sound is cut, or silence is put behind it', () => {
  expect([...padOrTrim(Float32Array.of(1, 2), 3)]).toEqual([1, 2, 0]);
  expect([...padOrTrim(Float32Array.of(1, 2, 3), 2)]).toEqual([1, 2]);
});

test('channels are mixed to their mean', () => {
  expect([...mix([Float32Array.of(1, 0), Float32Array.of(0, -1)])]).toEqual([
    0.5, -0.5,
  ]);
  expect(mix([]).length).toBe(0);
});

test('a WAV file has its header and its samples', async () => {
  const bytes = Buffer.from(
    await toWav({ samples: Float32Array.of(1, -2), rate: 8000 }).arrayBuffer(),
  );
  expect(bytes.toString('latin1', 0, 4)).toBe('RIFF');
  expect(bytes.readUInt32LE(24)).toBe(8000);
  expect([bytes.readInt16LE(44), bytes.readInt16LE(46)]).toEqual([32767, -32767]);
});

test('notes have names, and CREPE bins pitches', () => {
  expect(noteOf(440)).toEqual({ name: 'A4', cents: 0 });
  expect(noteOf(261.63)).toEqual({ name: 'C4', cents: 0 });
  expect(noteOf(445).cents).toBe(20);
  const bins = new Float32Array(360);
  bins[200] = 0.9;
  const { hertz, confidence } = crepePitch(bins);
  expect(hertz).toBeCloseTo(10 * 2 ** ((20 * 200 + 1997.3794) / 1200), 3);
  expect(confidence).toBeCloseTo(0.9);
});

test('a refused microphone says what to do', () => {
  const error = new DOMException('', 'NotAllowedError');
  expect(refusal('microphone', error)).toContain('allow it in the address bar');
});

test('long speech is cut where it is quiet, and nothing is lost', () => {
  const samples = Float32Array.from({ length: 1000 }, (_, n) =>
    n >= 360 && n < 380 ? 0 : 1,
  );
  const parts = cutSpeech(samples, 400, 100);
  expect(parts.map((part) => part.length)).toEqual([375, 395, 230]);
  expect(cutSpeech(samples, 1000, 100)).toHaveLength(1);
});

test('sound has silence behind it, and a length that the program takes', () => {
  const config = { multiple: 320, silence: 1600, least: 3200, most: 48000 };
  expect(paddedLength(0, config)).toBe(3200);
  expect(paddedLength(3200, config)).toBe(4800);
  expect(paddedLength(48000, config)).toBe(48000);
});

/** Hears a text of three tokens; each step must come with the position it is at. */
class Ear {
  readonly positions: number[] = [];
  async execute(name: string, inputs: unknown[]) {
    if (name === 'encode')
      return [new Tensor('float32', [1], [1]), new Tensor('float32', [2], [1])];
    expect(inputs).toHaveLength(4);
    const [at] = await (inputs[1] as Tensor).data();
    this.positions.push(Number(at));
    const next = [50, 65, 66, 67, 9][Number(at)] ?? 9;
    return [new Tensor('int64', [next], [1, 1])];
  }
}

test('a transcriber gives tokens until the one that ends a text', async () => {
  const ear = new Ear();
  const transcriber = new Transcriber(
    ear as unknown as Transcriber['module'],
    (tokens) => String.fromCharCode(...tokens),
    {
      rate: 100,
      multiple: 10,
      least: 10,
      most: 100,
      silence: 10,
      first: [7, 8],
      ends: [9],
      context: 20,
    },
  );
  let text = '';
  for await (const piece of transcriber.transcribe(new Float32Array(50))) text += piece;
  expect(text).toBe('ABC');
  expect(transcriber.tokens).toEqual([65, 66, 67]);
  expect(ear.positions).toEqual([0, 1, 2, 3, 4]);
});

test('a pitch is found for every frame', async () => {
  const rows: number[] = [];
  const module = {
    async execute(_: string, [frames]: unknown[]) {
      const { dims } = frames as Tensor;
      const count = dims[0] ?? 0;
      rows.push(count);
      const hertz = Float32Array.from({ length: count }, (_, n) => 100 + n);
      return [
        new Tensor('float32', hertz, [count]),
        new Tensor('float32', new Float32Array(count).fill(0.5), [count]),
      ];
    },
  } as unknown as Transcriber['module'];
  const spec = { frame: 4, hop: 2, normalize: false, most: 3 };
  const found = await detectPitch(module, new Float32Array(12), spec);
  expect(rows).toEqual([3, 2]);
  expect(found.map(({ hertz }) => hertz)).toEqual([100, 101, 102, 100, 101]);
});
