/** `Module` in a page: what it takes, gives and refuses. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type * as Runtime from '../../src/index';
import { Bench, BUILD, type Opened } from './browser';

declare const runtime: typeof Runtime;
/** What tests/browser/pages/blank.html defines beside it. */
declare const given: {
  tensor(shown: Shown): Runtime.Tensor;
  distance(tensor: Runtime.Output | undefined, shown: Shown): Promise<number>;
  refusal(work: () => Promise<unknown>): Promise<{ code: string; message: string }>;
};

interface Shown {
  type: Runtime.TensorType;
  dims: number[];
  data: string;
}

const bench = new Bench();
let opened: Opened;
let page: Page;

/** What Python gave for a program, with what went in first. */
function calls(name: string): Shown[] {
  const path = join(BUILD, 'programs', `${name}.json`);
  return JSON.parse(readFileSync(path, 'utf8')).calls;
}

beforeAll(async () => {
  opened = await bench.open('/test/blank.html');
  page = opened.page;
});

afterAll(async () => {
  expect(opened.errors).toEqual([]);
  await opened.context.close();
});

describe('a program', () => {
  it('comes from an address, bytes, a Blob or a stream', async () => {
    const found = await page.evaluate(async ([x, y]) => {
      const { Module } = runtime;
      const bytes = await (await fetch('/programs/mlp.pte')).arrayBuffer();
      const stream = (await fetch('/programs/mlp.pte')).body as ReadableStream;
      const inputs = ['/programs/mlp.pte', bytes, new Uint8Array(bytes)];
      const distances: number[] = [];
      for (const from of [...inputs, new Blob([bytes]), stream]) {
        const stages = new Set<string>();
        const module = await Module.load(from as ArrayBuffer, {
          onProgress: ({ stage }) => stages.add(stage),
        });
        const [output] = await module.forward([given.tensor(x as Shown)]);
        distances.push(await given.distance(output, y as Shown));
        if ([...stages].sort().join() !== 'download,kernels,ready,weights') {
          throw new Error([...stages].join());
        }
        module.dispose();
      }
      return distances;
    }, calls('mlp'));
    expect(found.length).toBe(5);
    expect(Math.max(...found)).toBeLessThan(1e-5);
  });

  it('says what it takes and needs before its weights come', async () => {
    const found = await page.evaluate(async () => {
      const stages: string[] = [];
      const module = await runtime.Module.open('/programs/mlp.pte', {
        onProgress: ({ stage }) => stages.push(stage),
      });
      const { methods, requirements, device } = module;
      const isEarly = !stages.includes('weights') && device === undefined;
      await module.load();
      const told = { methods, meta: module.meta(), requirements, isEarly };
      module.dispose();
      return told;
    });
    expect(found.methods).toEqual(['forward']);
    expect(found.isEarly).toBe(true);
    const [size, width] = (found.meta.inputs[0] as { dims: unknown[] }).dims;
    expect(size).toMatchObject({ min: 1, max: 16, step: 1 });
    expect(width).toBe(64);
    expect(found.requirements.weightBytes).toBe(4 * (64 * 256 + 256 + 256 * 32 + 32));
    expect(found.requirements.gpuBytes).toBeGreaterThan(found.requirements.weightBytes);
    expect(found.requirements.features).toEqual([]);
    expect(found.requirements.limits.maxComputeInvocationsPerWorkgroup).toBe(256);
  });

  it('has several methods', async () => {
    const found = await page.evaluate(async ([x, plain, tail]) => {
      const module = await runtime.Module.load('/programs/two_methods.pte');
      const distances: number[] = [];
      for (const [name, wanted] of [
        ['plain', plain],
        ['tail', tail],
        ['plain', plain],
      ] as const) {
        const [output] = await module.execute(name, [given.tensor(x as Shown)]);
        distances.push(await given.distance(output, wanted as Shown));
      }
      const unknown = await given.refusal(() => module.forward([]));
      const { methods } = module;
      module.dispose();
      return { distances, unknown, methods };
    }, calls('two_methods'));
    expect(found.methods).toEqual(['plain', 'tail']);
    expect(Math.max(...found.distances)).toBeLessThan(1e-5);
    expect(found.unknown.message).toBe(
      'Module: a method must be one of plain, tail, got forward',
    );
  });

  it('keeps a state until it is reset', async () => {
    const found = await page.evaluate(async () => {
      const module = await runtime.Module.load('/programs/sum.pte');
      const add = async (...x: number[]) => {
        const [y] = await module.forward([new runtime.Tensor('float32', x, [4])]);
        return [...((await (y as Runtime.Tensor).data()) as Float32Array)];
      };
      const first = await add(1, 2, 3, 4);
      const second = await add(1, 1, 1, 1);
      await module.resetState();
      const third = await add(5, 5, 5, 5);
      const { hasState } = module;
      module.dispose();
      return { first, second, third, hasState };
    });
    expect(found).toEqual({
      first: [1, 2, 3, 4],
      second: [2, 3, 4, 5],
      third: [5, 5, 5, 5],
      hasState: true,
    });
  });

  it('takes results as inputs without reading them, and calls at once', async () => {
    const found = await page.evaluate(async () => {
      const module = await runtime.Module.load('/programs/sum.pte');
      const one = new runtime.Tensor('float32', [1, 1, 1, 1], [4]);
      const all = await Promise.all([1, 2, 3].map(() => module.forward([one])));
      const [last] = all[2] as [Runtime.Tensor];
      const [more] = (await module.forward([last])) as [Runtime.Tensor];
      const isOnGpu = last.gpuBuffer !== undefined && more.gpuBuffer !== undefined;
      const sums = await Promise.all(
        [...all.map(([each]) => each as Runtime.Tensor), more].map(
          async (each) => (await each.data())[0],
        ),
      );
      module.dispose();
      return { sums, isOnGpu };
    });
    expect(found).toEqual({ sums: [1, 2, 3, 6], isOnGpu: true });
  });

  it('without f16 on the GPU takes plans without', async () => {
    const found = await page.evaluate(async ([x]) => {
      const module = await runtime.Module.load('/programs/half_weights.pte');
      const [y] = await module.forward([given.tensor(x as Shown)]);
      const { type } = y as Runtime.Tensor;
      const told = { ...module.stats(), type, needs: module.requirements };
      module.dispose();
      return told;
    }, calls('half_weights'));
    expect(found.type).toBe('float16');
    expect(found.profiles.join()).not.toContain('f16');
    expect(found.needs.features).toEqual([]);
    expect(found.needs.optionalFeatures).toContain('shader-f16');
  });
});

describe('a call is refused', () => {
  it('with another type or shape, by both', async () => {
    const found = await page.evaluate(async () => {
      const { Module, Tensor } = runtime;
      const module = await Module.load('/programs/mlp.pte');
      const called = (...inputs: Runtime.Input[]) =>
        given.refusal(() => module.forward(inputs));
      const zeros = (...dims: number[]) =>
        new Tensor('float32', new Float32Array(dims.reduce((a, b) => a * b)), dims);
      const told = [
        await called(new Tensor('int32', new Int32Array(64), [1, 64])),
        await called(zeros(1, 63)),
        await called(zeros(64)),
        await called(zeros(17, 64)),
        await called(zeros(4, 64), zeros(4, 64)),
        await called(5),
      ];
      // The module is as usable as before.
      const [y] = await module.forward([zeros(2, 64)]);
      const { dims } = y as Runtime.Tensor;
      module.dispose();
      return { told: told.map(({ message }) => message), dims };
    });
    expect(found.told[0]).toBe(
      'forward: input 0 must be a tensor of float32 at most [16, 64], got int32 [1, 64]',
    );
    expect(found.told[1]).toMatch(/must have shape .*64.*, got \[1, 63\]$/);
    expect(found.told[2]).toMatch(/must have 2 dimensions, got \[64\]$/);
    expect(found.told[3]).toMatch(/must be in \[1, 16\], got 17/);
    expect(found.told[4]).toBe('forward: inputs must be 1, got 2');
    expect(found.told[5]).toBe('forward: input 0 must be a tensor, got number 5');
    expect(found.dims).toEqual([2, 32]);
  });

  it('after it was disposed of, and by a signal', async () => {
    const found = await page.evaluate(async () => {
      const { Module, Tensor } = runtime;
      const x = new Tensor('float32', new Float32Array(32 * 256), [32, 256]);
      const module = await Module.load('/programs/deep.pte');
      const before = AbortSignal.abort(new Error('not wanted'));
      const told = [await given.refusal(() => module.forward([x], { signal: before }))];
      const during = new AbortController();
      const running = given.refusal(() =>
        module.forward([x], { signal: during.signal }),
      );
      setTimeout(() => during.abort(new Error('too long')), 30);
      told.push(await running);
      const [y] = await module.forward([x]);
      await (y as Runtime.Tensor).data();
      module.dispose();
      module.dispose();
      told.push(await given.refusal(() => module.forward([x])));
      const loading = new AbortController();
      const load = given.refusal(() =>
        Module.load('/programs/deep.pte', {
          signal: loading.signal,
          onProgress: ({ stage }) =>
            stage === 'kernels' && loading.abort(new Error('enough')),
        }),
      );
      told.push(await load);
      return told.map(({ message }) => message);
    });
    expect(found).toEqual([
      'not wanted',
      'too long',
      'Module: must be alive, got disposed',
      'enough',
    ]);
  });
});

describe('a program is refused', () => {
  const load = (name: string) =>
    page.evaluate(async (name) => {
      const stages: string[] = [];
      const onProgress = ({ stage }: Runtime.Progress) => stages.push(stage);
      const error = await given.refusal(() =>
        runtime.Module.load(`/programs/${name}.pte`, { onProgress }),
      );
      return { ...error, hasFetched: stages.includes('weights') };
    }, name);

  it('with an op on the CPU, by the name of the op and how to export', async () => {
    const { code, message } = await load('on_cpu');
    expect(code).toBe('NotSupported');
    expect(message).toMatch(
      /^forward: all ops must run on the GPU in a browser, got aten::/,
    );
    expect(message).toContain('WebGPUPartitioner(portable=True)');
  });

  it('without plans', async () => {
    expect((await load('no_plans')).message).toBe(
      'init of forward: delegate must carry plans, got none; export with' +
        ' WebGPUPartitioner(portable=True)',
    );
  });

  it('that needs more than the adapter has, before weights are fetched', async () => {
    const { code, message, hasFetched } = await load('too_large');
    expect(code).toBe('NotSupported');
    expect(message).toMatch(
      /for profile \w+, max-compute-invocations-per-workgroup of 1048576, got \d+$/,
    );
    expect(hasFetched).toBe(false);
  });

  it('that is damaged or cut short, wherever', async () => {
    const found = await page.evaluate(async () => {
      const { Module } = runtime;
      const bytes = new Uint8Array(
        await (await fetch('/programs/mlp.pte')).arrayBuffer(),
      );
      const told: string[] = [];
      for (const part of [0, 10, 100, 0.1, 0.5, 0.9, 0.999]) {
        const size = part < 1 && part > 0 ? Math.floor(bytes.length * part) : part;
        const { code, message } = await given.refusal(() =>
          Module.load(bytes.slice(0, size)),
        );
        told.push(`${code}: ${message}`);
      }
      // A byte of the weights, which are last.
      const changed = bytes.slice();
      const at = changed.findLastIndex((byte) => byte !== 0);
      changed[at] = (changed[at] ?? 0) ^ 1;
      const damaged = await given.refusal(() => Module.load(changed));
      const trusted = await Module.load(changed, { verify: false });
      trusted.dispose();
      return { told, damaged: damaged.message };
    });
    for (const each of found.told) {
      expect(each).toMatch(/^(InvalidProgram|AccessFailed): the (file|program) must/);
    }
    expect(found.told.at(-1)).toMatch(/the file is cut short$/);
    expect(found.damaged).toMatch(
      /must have the content that its key is the hash of, got .*; the file is damaged$/,
    );
  });
});

describe('what it did', () => {
  it('is told by kernel', async () => {
    const found = await page.evaluate(async ([x, y]) => {
      const module = await runtime.Module.load('/programs/deep.pte');
      const profile = await module.profile('forward', [given.tensor(x as Shown)]);
      const distance = await given.distance(profile.outputs[0], y as Shown);
      const stats = module.stats();
      module.dispose();
      return { ...profile, outputs: [], distance, stats };
    }, calls('deep'));
    expect(found.distance).toBeLessThan(1e-4);
    expect(found.isTimedByGpu).toBe(true);
    expect(found.dispatches.length).toBeGreaterThanOrEqual(80);
    expect(found.gpuMs).toBeGreaterThan(0);
    const counted = found.rows.reduce((sum, { count }) => sum + count, 0);
    expect(counted).toBe(found.dispatches.length);
    expect(found.stats.calls).toBe(1);
    expect(found.stats.dispatches).toBe(found.dispatches.length);
    expect(found.stats.weightBytes).toBeGreaterThan(80 * 256 * 256 * 4);
    expect(found.stats.adapter).toMatch(/swiftshader/);
  });

  it('is compared with the calls in a bundle', async () => {
    const found = await page.evaluate(async () => {
      const module = await runtime.Module.load('/programs/bundle.bpte');
      const verified = await module.verify();
      const loose = await module.verify({ atol: 2 });
      const { isBundle } = module;
      module.dispose();
      const plain = await runtime.Module.load('/programs/mlp.pte');
      const none = await given.refusal(() => plain.verify());
      plain.dispose();
      return { verified, loose, isBundle, none };
    });
    expect(found.isBundle).toBe(true);
    expect(found.verified.map(({ isRight }) => isRight)).toEqual([
      true,
      true,
      true,
      false,
    ]);
    expect(found.verified[0]?.largestError).toBeLessThan(1e-5);
    expect(found.verified[3]?.problem).toMatch(/^result 0 must be .* at 0, got /);
    expect(found.verified[3]?.largestError).toBeCloseTo(1, 4);
    expect(found.loose.every(({ isRight }) => isRight)).toBe(true);
    expect(found.none.message).toContain('must be given a bundled program');
  });

  it('never kept the page from its own work for long', async () => {
    const found = await page.evaluate(async ([x]) => {
      const module = await runtime.Module.load('/programs/deep.pte');
      const tasks: number[] = [];
      const observer = new PerformanceObserver((list) => {
        tasks.push(...list.getEntries().map((entry) => entry.duration));
      });
      // A task of the test's own shows that they are seen.
      observer.observe({ type: 'longtask' });
      const started = performance.now();
      while (performance.now() - started < 80) {}
      await new Promise((resolve) => setTimeout(resolve, 100));
      const own = tasks.splice(0).length;
      for (let i = 0; i < 4; i++) {
        const [y] = await module.forward([given.tensor(x as Shown)]);
        await (y as Runtime.Tensor).data();
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
      observer.disconnect();
      module.dispose();
      return { own, tasks };
    }, calls('deep'));
    expect(found.own).toBeGreaterThan(0);
    expect(found.tasks).toEqual([]);
  });
});
