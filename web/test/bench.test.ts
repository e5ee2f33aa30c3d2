import { describe, expect, it } from 'vitest';
import { CASES, elementsOf } from '../site/bench/cases';
import { chartSvg } from '../site/bench/chart';
import type { Engine, EngineFacts, Results } from '../site/bench/engine';
import { watchHeap } from '../site/bench/heap';
import { type MeasureOptions, measureCase } from '../site/bench/measure';
import { ConsoleTap, misplaced, readPlacement, WEBGPU } from '../site/bench/placement';
import { type CaseResult, gzipBytes, meansOf, rowOf } from '../site/bench/results';
import {
  difference,
  geometricMean,
  median,
  quantile,
  spread,
} from '../site/bench/stats';

describe('statistics', () => {
  it('takes the middle of samples in any order', () => {
    expect(median([9, 1, 5])).toBe(5);
    expect(median([4, 1, 3, 2])).toBe(2.5);
    expect(quantile([10, 20, 30, 40, 50], 0.25)).toBe(20);
    expect(() => median([])).toThrow('there must be samples, got none');
  });

  it('does not let one slow run widen the spread', () => {
    expect(spread([100, 100, 100, 100, 900])).toBe(0);
    expect(spread([80, 90, 100, 110, 120])).toBeCloseTo(0.1);
  });

  it('has a mean in which twice as fast and twice as slow are equal', () => {
    expect(geometricMean([2, 0.5])).toBeCloseTo(1);
    expect(geometricMean([4, 9])).toBeCloseTo(6);
    expect(() => geometricMean([])).toThrow('got none');
  });

  it('compares results by the largest value of each', () => {
    expect(difference([[1, 2, 4]], [[1, 2, 5]])).toBeCloseTo(0.2);
    expect(difference([[1n, 7n]], [[1n, 7n]])).toBe(0);
    expect(difference([[1], [0, 100]], [[1], [1, 100]])).toBeCloseTo(0.01);
    expect(difference([[0]], [[0]])).toBe(0);
    expect(difference([[1, 2]], [[1]])).toBeNaN();
    expect(difference([[1]], [[1], [2]])).toBeNaN();
    expect(difference([[Number.NaN]], [[1]])).toBeNaN();
  });
});

describe('cases', () => {
  it('have names of their own and inputs that are always the same', () => {
    expect(new Set(CASES.map(({ name }) => name)).size).toBe(CASES.length);
    for (const { inputs } of CASES) {
      for (const spec of [...inputs.full, ...inputs.small]) {
        const data = elementsOf(spec);
        expect(data.length).toBe(spec.dims.reduce((a, b) => a * b, 1));
        const again = elementsOf(spec);
        expect(data.every((value, index) => value === again[index])).toBe(true);
      }
    }
  });

  it('draw tokens from their range, and count positions', () => {
    const fill = { kind: 'tokens', from: 300, to: 400 } as const;
    const ids = [...elementsOf({ type: 'int64', dims: [1, 500], fill })].map(Number);
    expect(Math.min(...ids)).toBeGreaterThanOrEqual(300);
    expect(Math.max(...ids)).toBeLessThan(400);
    const count = { kind: 'count', from: 128 } as const;
    expect([...elementsOf({ type: 'int64', dims: [3], fill: count })]).toEqual([
      128n,
      129n,
      130n,
    ]);
  });
});

describe('placement', () => {
  const LOG = [
    '[V:onnxruntime:, x.cc:1 F]  Node(s) placed on [WebGpuExecutionProvider]. Number of nodes: 40',
    '[V:onnxruntime:, x.cc:1 F]  Node(s) placed on [CPUExecutionProvider]. Number of nodes: 2',
  ];

  it('is read from the log', () => {
    expect(readPlacement(LOG)).toEqual({ [WEBGPU]: 40, CPUExecutionProvider: 2 });
    const all = 'All nodes placed on [WebGpuExecutionProvider]. Number of nodes: 64';
    expect(readPlacement(['no', all])).toEqual({ [WEBGPU]: 64 });
    expect(readPlacement(['no'])).toBeUndefined();
  });

  it('is refused if nothing is on the GPU, or nothing is known', () => {
    expect(misplaced({ [WEBGPU]: 40, CPUExecutionProvider: 2 })).toBeUndefined();
    expect(misplaced({ CPUExecutionProvider: 42 })).toContain('CPUExecutionProvider');
    expect(misplaced(undefined)).toContain('got nothing');
  });

  it('hears a console that the runtime has kept, and gives it back', async () => {
    const shown: unknown[] = [];
    const write = (...parts: unknown[]): void => void shown.push(...parts);
    const target = { debug: write, log: write, info: write, warn: write, error: write };
    const tap = new ConsoleTap(target);
    const kept = target.error;
    expect(await tap.listen(async () => kept('a', 1))).toEqual(['a 1']);
    await expect(tap.listen(() => Promise.reject(new Error('no')))).rejects.toThrow(
      'no',
    );
    kept('b');
    expect(shown).toEqual(['b']);
  });
});

it('sees the largest heap', async () => {
  const seen = [100, 500, 300, 200, 200];
  const wait = () => new Promise((resolve) => setTimeout(resolve, 35));
  const { heap } = await watchHeap(wait, () => seen.shift() ?? 200);
  expect(heap).toEqual({ heapBefore: 100, heapPeak: 500 });
  expect(
    await watchHeap(
      async () => 1,
      () => undefined,
    ),
  ).toEqual({ made: 1, heap: {} });
});

class FakeEngine implements Engine {
  disposed = 0;
  readonly #log: string[];
  constructor(
    readonly name: string,
    log: string[],
    readonly results: Results,
    readonly ms: number,
    readonly known: EngineFacts = {},
  ) {
    this.#log = log;
  }
  async first() {
    this.#log.push(`${this.name} first`);
    return { ms: 10 * this.ms, results: this.results };
  }
  async run() {
    this.#log.push(this.name);
    return { ms: this.ms, results: this.results };
  }
  async facts() {
    return this.known;
  }
  async dispose() {
    this.disposed++;
  }
}

function options(more: Partial<MeasureOptions> = {}): MeasureOptions {
  const { signal } = new AbortController();
  return { rounds: 3, sizes: 'small', signal, onStep: () => undefined, ...more };
}

const [CASE] = CASES as [(typeof CASES)[number]];

describe('a measurement', () => {
  it('lets the engines take turns, and keeps every sample', async () => {
    const log: string[] = [];
    const ours = new FakeEngine('ours', log, [[1, 2]], 5, { profiles: ['baseline'] });
    const ort = new FakeEngine('ort', log, [[1, 2.001]], 15, {
      nodes: { [WEBGPU]: 9, CPUExecutionProvider: 1 },
    });
    const result = await measureCase(CASE, { ours, ort }, options());
    expect(log).toEqual(
      ['ours first', 'ort first', 'ours', 'ort', 'ort', 'ours', 'ours', 'ort'].flat(),
    );
    expect(result.engines.ours).toMatchObject({ samples: [5, 5, 5], firstMs: 50 });
    expect(result.difference).toBeCloseTo(0.0005);
    expect([ours.disposed, ort.disposed]).toEqual([1, 1]);
    const row = rowOf(result);
    expect(row.ratio).toBe(3);
    expect(row.firstRatio).toBe(3);
    expect(row.notes).toEqual([
      'onnxruntime-web: 1 of 10 nodes on CPUExecutionProvider',
    ]);
  });

  it('does not time results that disagree, or a peer that is not on the GPU', async () => {
    const log: string[] = [];
    const ours = new FakeEngine('ours', log, [[1, 2]], 5);
    const wrong = new FakeEngine('ort', log, [[1, 2.2]], 15);
    const apart = await measureCase(CASE, { ours, ort: wrong }, options());
    expect(apart.engines.ort?.failed).toContain('within 1%');
    expect(rowOf(apart).ratio).toBeUndefined();
    const failed = 'nodes must run on the GPU';
    const slow = new FakeEngine('ort', log, [[1, 2]], 15, { failed });
    const other = await measureCase(CASE, { ours, ort: slow }, options());
    expect(rowOf(other).ort).toBeUndefined();
    expect(rowOf(other).ours?.ms).toBe(5);
    expect(rowOf(other).notes).toEqual([`onnxruntime-web: ${failed}`]);
    expect(meansOf([rowOf(apart), rowOf(other)])).toBeUndefined();
  });

  it('goes on without an engine that fails, and stops when it is told to', async () => {
    const ours = new FakeEngine('ours', [], [[1]], 5);
    const ort = new FakeEngine('ort', [], [[1]], 15);
    ort.first = () => Promise.reject(new Error('out of memory'));
    const result = await measureCase(CASE, { ours, ort }, options());
    expect(result.engines.ort?.failed).toBe('out of memory');
    expect(result.engines.ours?.samples).toHaveLength(3);
    expect(result.difference).toBeNull();
    const controller = new AbortController();
    const onStep = (): void => controller.abort();
    const { signal } = controller;
    await expect(
      measureCase(CASE, { ours, ort }, options({ signal, onStep })),
    ).rejects.toThrow('abort');
    expect([ours.disposed, ort.disposed]).toEqual([2, 2]);
  });
});

describe('the picture', () => {
  const result = (ms: number, title: string): CaseResult => ({
    name: title,
    title,
    inputs: [{ type: 'float32', dims: [1, 2] }],
    difference: 0,
    engines: {
      ours: { samples: [10], firstMs: 1 },
      ort: { samples: [ms], firstMs: 2 },
    },
  });
  const words = { title: 'Times', where: 'a "GPU" & <more>' };

  it('has a bar for each model that both ran, as long as its ratio', () => {
    const alone = result(1, 'alone');
    delete alone.engines.ort;
    const rows = [result(40, 'a <b>'), result(5, 'slow'), alone].map(rowOf);
    const svg = chartSvg(rows, words);
    const widths = [...svg.matchAll(/class="bar"[^>]* width="([\d.]+)"/g)].map(
      ([, width]) => Number(width),
    );
    expect(widths).toHaveLength(2);
    expect((widths[0] as number) / (widths[1] as number)).toBeCloseTo(8, 1);
    expect(svg).toContain('4.00x');
    expect(svg).toContain('a &#60;b&#62;, 1x2');
    expect(svg).not.toContain('<more>');
    expect(meansOf(rows)?.ratio).toBeCloseTo(Math.sqrt(2));
  });

  it('says so if there is nothing to show', () => {
    expect(chartSvg([], words)).toContain('No model was run by both.');
  });
});

it('adds up what a runtime weighs', () => {
  const files = [1, 2].map((gzip) => ({ file: 'a', bytes: 9, gzip }));
  expect(gzipBytes({ version: '1', files })).toBe(3);
});
