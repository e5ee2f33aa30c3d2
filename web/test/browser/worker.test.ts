/** Programs in a worker: the same results, and what becomes of them with it. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type * as Runtime from '../../src/index';
import { Bench, BUILD, type Opened, WEB } from './browser';
import { type Server, startServer } from './server';

declare const runtime: typeof Runtime;

const bench = new Bench();
let opened: Opened;
let page: Page;

beforeAll(async () => {
  opened = await bench.open('/test/blank.html');
  page = opened.page;
});

afterAll(async () => {
  expect(opened.errors).toEqual([]);
  await opened.context.close();
});

/** What a program of the tests should give, as Python says. */
function calls(name: string): { type: string; dims: number[]; data: string }[] {
  const path = join(BUILD, 'programs', `${name}.json`);
  return JSON.parse(readFileSync(path, 'utf8')).calls;
}

describe('a worker', () => {
  it('gives what the page itself gives, and keeps results', async () => {
    const [x, y] = calls('mlp');
    const found = await page.evaluate(async (given) => {
      const decode = (text: string) =>
        new Float32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
      const input = () => new runtime.Tensor('float32', decode(given.data), given.dims);
      const stages = new Set<string>();
      const local = await runtime.Module.load('/programs/mlp.pte');
      const worker = await runtime.createWorker();
      const remote = await worker.load('/programs/mlp.pte', {
        onProgress: ({ stage }) => stages.add(stage),
      });
      const results: number[][] = [];
      for (const module of [local, remote]) {
        const [output] = await module.forward([input()]);
        results.push([...((await (output as Runtime.Tensor).data()) as Float32Array)]);
      }
      const facts = [local, remote].map((module) => ({
        methods: module.methods,
        meta: module.meta(),
        requirements: module.requirements,
        hasState: module.hasState,
      }));
      const stats = await remote.stats();
      const profile = await remote.profile('forward', [input()]);
      worker.dispose();
      local.dispose();
      const dispatches = profile.dispatches.length;
      return { results, facts, stages: [...stages], stats, dispatches };
    }, x!);
    expect(found.results[0]?.length).toBeGreaterThan(0);
    expect(found.results[1]).toEqual(found.results[0]);
    const bytes = Buffer.from(y!.data, 'base64');
    const view = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
    for (const [i, value] of view.entries()) {
      expect(found.results[0]?.[i]).toBeCloseTo(value, 4);
    }
    expect(found.facts[1]).toEqual(found.facts[0]);
    expect(found.stages).toEqual(
      expect.arrayContaining(['download', 'kernels', 'weights', 'ready']),
    );
    expect(found.stats.calls).toBe(1);
    expect(found.dispatches).toBeGreaterThan(0);
  });

  it('takes its own results as inputs, and reads them once they are asked for', async () => {
    const found = await page.evaluate(async () => {
      const worker = await runtime.createWorker();
      const module = await worker.load('/programs/sum.pte');
      const ones = new runtime.Tensor('float32', new Float32Array([1, 1, 1, 1]), [4]);
      const [first] = (await module.forward([ones])) as Runtime.Tensor[];
      const onPage = first!.gpuBuffer !== undefined;
      const [second] = (await module.forward([first!])) as Runtime.Tensor[];
      const sums = [[...(await second!.data())], [...(await first!.data())]];
      await module.resetState();
      const [third] = (await module.forward([ones])) as Runtime.Tensor[];
      sums.push([...(await third!.data())]);
      const { hasState } = module;
      worker.dispose();
      return { sums, onPage, hasState };
    });
    expect(found).toEqual({
      sums: [
        [2, 2, 2, 2],
        [1, 1, 1, 1],
        [1, 1, 1, 1],
      ],
      onPage: false,
      hasState: true,
    });
  });

  it('verifies a bundle, and opens before it loads', async () => {
    const found = await page.evaluate(async () => {
      const worker = await runtime.createWorker();
      const module = await worker.open('/programs/bundle.bpte');
      const bytes = module.requirements.weightBytes;
      await module.load();
      const verified = await module.verify();
      worker.dispose();
      return {
        bytes,
        isBundle: module.isBundle,
        right: verified.map((v) => v.isRight),
      };
    });
    expect(found.bytes).toBeGreaterThan(0);
    expect(found.isBundle).toBe(true);
    expect(found.right).toEqual([true, true, true, false]);
  });

  it('tells the same errors as the page itself', async () => {
    const [local, remote] = await page.evaluate(async () => {
      const worker = await runtime.createWorker();
      const told: string[][] = [];
      for (const from of [runtime.Module, worker]) {
        const texts: string[] = [];
        const tell = (error: unknown) =>
          texts.push(
            `${error instanceof runtime.WebGPUError} ${(error as Runtime.WebGPUError).code} ${error}`,
          );
        for (const name of [
          'missing.pte',
          'no_plans.pte',
          'on_cpu.pte',
          'too_large.pte',
        ]) {
          await from.load(`/programs/${name}`).catch(tell);
        }
        const module = await from.load('/programs/mlp.pte');
        const ints = new runtime.Tensor('int32', new Int32Array(128), [2, 64]);
        const wide = new runtime.Tensor('float32', new Float32Array(65), [1, 65]);
        await module.forward([ints]).catch(tell);
        await module.forward([wide]).catch(tell);
        await module.forward([]).catch(tell);
        await module.execute('backward', []).catch(tell);
        const signal = AbortSignal.abort(new Error('enough'));
        await module.execute('forward', [], { signal }).catch(tell);
        module.dispose();
        await module.forward([wide]).catch(tell);
        told.push(texts);
      }
      worker.dispose();
      return told as [string[], string[]];
    });
    expect(local.length).toBe(10);
    expect(remote).toEqual(local);
    // The address of what is not there is in the page's console, too.
    opened.errors.splice(0);
  });

  it('that is disposed of, ends by itself, or is not there rejects what waits', async () => {
    const told = await page.evaluate(async () => {
      const texts: string[] = [];
      const tell = (error: unknown) => texts.push(String(error));
      const first = await runtime.createWorker();
      const module = await first.load('/programs/mlp.pte');
      const waiting = module.stats().catch(tell);
      first.dispose();
      await waiting;
      await first.load('/programs/mlp.pte').catch(tell);
      const second = await runtime.createWorker({ url: '/test/closing_worker.js' });
      const closing = await second.load('/programs/mlp.pte');
      await Promise.all([closing.stats().catch(tell), closing.verify().catch(tell)]);
      await runtime.createWorker({ url: '/test/missing.js' }).catch(tell);
      return texts;
    });
    expect(told.length).toBe(5);
    for (const text of told) {
      expect(text).toContain('WebGPUError: worker: must be alive, got ');
    }
    expect(told[4]).toContain('/test/missing.js');
    opened.errors.splice(0);
  });
});

describe('the script of a worker', () => {
  let elsewhere: Server;
  beforeAll(async () => {
    elsewhere = await startServer({ '/': join(WEB, 'dist') });
  });
  afterAll(() => elsewhere.close());

  it('may be of another origin, as of a CDN', async () => {
    const { page, context } = await bench.open('/test/blank.html');
    // The server of the tests allows no other origin; a CDN does.
    await page.route(`${elsewhere.url}/**`, async (route) => {
      const response = await route.fetch();
      const headers = { ...response.headers(), 'access-control-allow-origin': '*' };
      await route.fulfill({ response, headers });
    });
    const methods = await page.evaluate(async (url) => {
      const worker = await runtime.createWorker({ url });
      const module = await worker.load('/programs/mlp.pte');
      const { methods } = module;
      worker.dispose();
      return methods;
    }, `${elsewhere.url}/worker.js`);
    expect(methods).toEqual(['forward']);
    await context.close();
  });
});
