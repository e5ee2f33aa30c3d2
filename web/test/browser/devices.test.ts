/** Devices that are lost, missing, full or the caller's own. */

import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type * as Runtime from '../../src/index';
import { Bench, type Opened } from './browser';

declare const runtime: typeof Runtime;
declare const given: {
  refusal(work: () => Promise<unknown>): Promise<{ code: string; message: string }>;
  add(module: Runtime.Module, ...x: number[]): Promise<number[]>;
};

const LOST =
  'the GPU device must be alive, got lost; load the method again for a new one';

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

describe('a lost device', () => {
  it('is replaced, and the call made again', async () => {
    const found = await page.evaluate(async () => {
      const lost: Runtime.Lost[] = [];
      const loading = new AbortController();
      const module = await runtime.Module.load('/programs/mlp.pte', {
        onLost: (info) => lost.push(info),
        signal: loading.signal,
      });
      // Of loading only, not of what was loaded.
      loading.abort();
      const x = new runtime.Tensor('float32', new Float32Array(64).fill(0.5), [1, 64]);
      const run = async () => {
        const [y] = (await module.forward([x])) as [Runtime.Tensor];
        return [...((await y.data()) as Float32Array)].join();
      };
      const before = await run();
      const { device } = module;
      device?.destroy();
      await device?.lost;
      const after = await run();
      const { recoveries } = module.stats();
      const isNew = module.device !== device;
      module.dispose();
      return { isSame: after === before, lost, recoveries, isNew };
    });
    expect(found.isSame).toBe(true);
    expect(found.recoveries).toBe(1);
    expect(found.isNew).toBe(true);
    expect(found.lost.length).toBe(1);
    expect(found.lost[0]).toMatchObject({ reason: 'destroyed', recovers: true });
  });

  it('in the middle of a call is replaced, too', async () => {
    const found = await page.evaluate(async () => {
      const module = await runtime.Module.load('/programs/deep.pte');
      const x = new runtime.Tensor(
        'float32',
        new Float32Array(8192).fill(0.1),
        [32, 256],
      );
      const run = async () => {
        const [y] = (await module.forward([x])) as [Runtime.Tensor];
        return [...((await y.data()) as Float32Array)].join();
      };
      const { submits } = module.stats();
      const running = run();
      while (module.stats().submits === submits) {
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
      module.device?.destroy();
      const during = await running;
      const after = await run();
      const { recoveries } = module.stats();
      module.dispose();
      return { isSame: during === after, recoveries };
    });
    expect(found).toEqual({ isSame: true, recoveries: 1 });
  });

  it('takes a state with it, which the caller is told', async () => {
    const found = await page.evaluate(async () => {
      const module = await runtime.Module.load('/programs/sum.pte');
      const lose = async () => {
        const { device } = module;
        device?.destroy();
        await device?.lost;
      };
      await lose();
      const untouched = await given.add(module, 1, 2, 3, 4);
      await lose();
      const error = await given.refusal(() => given.add(module, 1, 1, 1, 1));
      const fresh = await given.add(module, 2, 2, 2, 2);
      module.dispose();
      return { untouched, error, fresh };
    });
    expect(found.untouched).toEqual([1, 2, 3, 4]);
    expect(found.error).toEqual({
      code: 'InvalidState',
      message:
        "Module: the GPU device must keep the module's state, got lost; there is a new " +
        'device with the state as it was loaded',
    });
    expect(found.fresh).toEqual([2, 2, 2, 2]);
  });

  it('is not replaced if that is not wanted', async () => {
    const found = await page.evaluate(async () => {
      const lost: Runtime.Lost[] = [];
      const module = await runtime.Module.load('/programs/sum.pte', {
        recover: false,
        onLost: (info) => lost.push(info),
      });
      module.device?.destroy();
      await module.device?.lost;
      const error = await given.refusal(() => given.add(module, 1, 2, 3, 4));
      const again = await given.refusal(() => given.add(module, 1, 2, 3, 4));
      module.dispose();
      return { error, again, recovers: lost[0]?.recovers };
    });
    expect(found.error.message).toContain(LOST);
    expect(found.again.message).toContain(LOST);
    expect(found.recovers).toBe(false);
  });
});

describe("a caller's own device", () => {
  it('takes its buffers, and is never destroyed', async () => {
    const found = await page.evaluate(async () => {
      const adapter = await navigator.gpu.requestAdapter();
      const device = await adapter?.requestDevice();
      if (device === undefined) {
        throw new Error('no device');
      }
      const module = await runtime.Module.load('/programs/sum.pte', { device });
      const usage = GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
      const buffer = device.createBuffer({ size: 16, usage });
      device.queue.writeBuffer(buffer, 0, Float32Array.of(1, 2, 3, 4));
      const x = runtime.Tensor.fromGpuBuffer(buffer, {
        type: 'float32',
        dims: [4],
        device,
      });
      const [y] = (await module.forward([x])) as [Runtime.Tensor];
      const result = y.gpuBuffer;
      const data = [...((await y.data({ keep: true })) as Float32Array)];
      const isOwn = module.device === device && result !== undefined;
      x.dispose();
      module.dispose();
      // Both are still usable.
      const encoder = device.createCommandEncoder();
      const target = device.createBuffer({
        size: 16,
        usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
      });
      encoder.copyBufferToBuffer(buffer, 0, target, 0, 16);
      device.queue.submit([encoder.finish()]);
      await target.mapAsync(GPUMapMode.READ);
      const kept = [...new Float32Array(target.getMappedRange())];
      device.destroy();
      return { data, isOwn, kept };
    });
    expect(found).toEqual({ data: [1, 2, 3, 4], isOwn: true, kept: [1, 2, 3, 4] });
  });

  it('is not replaced when it is lost', async () => {
    const found = await page.evaluate(async () => {
      const adapter = await navigator.gpu.requestAdapter();
      const device = (await adapter?.requestDevice()) as GPUDevice;
      const module = await runtime.Module.load('/programs/sum.pte', { device });
      device.destroy();
      const error = await given.refusal(() => given.add(module, 1, 2, 3, 4));
      module.dispose();
      return error.message;
    });
    expect(found).toContain(LOST);
  });

  it('that is full is told apart', async () => {
    const found = await page.evaluate(async () => {
      const adapter = await navigator.gpu.requestAdapter();
      const device = (await adapter?.requestDevice()) as GPUDevice;
      const createBuffer = device.createBuffer.bind(device);
      let isFull = true;
      // As drivers tell it: an error in the scope, and a buffer that is none.
      device.popErrorScope = async () => {
        await GPUDevice.prototype.popErrorScope.call(device);
        return isFull ? new GPUOutOfMemoryError('no room for 4 TB') : null;
      };
      const full = await given.refusal(() =>
        runtime.Module.load('/programs/sum.pte', { device }),
      );
      isFull = false;
      const module = await runtime.Module.load('/programs/sum.pte', { device });
      const sum = await given.add(module, 1, 2, 3, 4);
      module.dispose();
      createBuffer({ size: 16, usage: GPUBufferUsage.STORAGE }).destroy();
      device.destroy();
      return { full, sum };
    });
    expect(found.full.code).toBe('MemoryAllocationFailed');
    expect(found.full.message).toBe(
      'init of forward: forward: buffers: out of GPU memory: no room for 4 TB',
    );
    expect(found.sum).toEqual([1, 2, 3, 4]);
  });
});

describe('a page without a GPU', () => {
  it.each([
    ['without WebGPU', 'none', /^WebGPU: the browser must have WebGPU, got none; use /],
    ['without an adapter', 'null', /^there must be a GPU adapter, got none; update /],
  ])('%s is told what to do', async (_, kind, message) => {
    const context = await bench.browser.newContext();
    await context.addInitScript((kind) => {
      const gpu = kind === 'none' ? undefined : { requestAdapter: async () => null };
      Object.defineProperty(Navigator.prototype, 'gpu', { get: () => gpu });
    }, kind);
    const other = await context.newPage();
    await other.goto(new URL('/test/blank.html', bench.server.url).href);
    const found = await other.evaluate(async () => {
      // What the program needs can be shown all the same.
      const module = await runtime.Module.open('/programs/mlp.pte');
      const { weightBytes } = module.requirements;
      const error = await given.refusal(() => module.load());
      module.dispose();
      return { error, weightBytes };
    });
    expect(found.error.message).toMatch(message);
    expect(found.weightBytes).toBeGreaterThan(0);
    await context.close();
  });
});
