/** How a program comes to a page: over the network, from a cache, and what can go wrong. */

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CDPSession, Page } from 'playwright-core';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type * as Runtime from '../../src/index';
import { CHUNK } from '../../src/source/feeds';
import { FileServer } from '../file_server';
import { Bench, BUILD } from './browser';

declare const runtime: typeof Runtime;

const GALLERY = join(BUILD, '..', 'gallery');
const bench = new Bench({ '/gallery/': GALLERY });

/** A program of several chunks; what matters is that it comes, not what it computes. */
let program: Uint8Array<ArrayBuffer>;
let server: FileServer;
let url: string;

interface Options {
  cache?: 'cache' | 'opfs' | 'none';
  integrity?: string;
  verify?: boolean;
}

interface Loaded {
  error?: { code: string; message: string };
  weightBytes?: number;
  warnings: string[];
}

/** Loads and lets go of it, and tells how that went. */
function load(page: Page, from: string, options: Options = {}): Promise<Loaded> {
  return page.evaluate(
    async ([from, options]) => {
      const warnings: string[] = [];
      try {
        const module = await runtime.Module.load(from, {
          ...options,
          onWarning: (message) => warnings.push(message),
        });
        const { weightBytes } = module.stats();
        module.dispose();
        return { weightBytes, warnings };
      } catch (error) {
        const { code, message } = error as Runtime.WebGPUError;
        return { error: { code, message }, warnings };
      }
    },
    [from, options] as const,
  );
}

/** How many entries are kept, in both places. */
function kept(page: Page): Promise<number> {
  return page.evaluate(async () => {
    let count = 0;
    for (const name of await caches.keys()) {
      count += (await (await caches.open(name)).keys()).length;
    }
    const visit = async (folder: FileSystemDirectoryHandle): Promise<void> => {
      for await (const handle of folder.values()) {
        if (handle.kind === 'directory') {
          await visit(handle as FileSystemDirectoryHandle);
        } else {
          count++;
        }
      }
    };
    await visit(await navigator.storage.getDirectory());
    return count;
  });
}

function sri(bytes: Uint8Array, algorithm = 'sha256'): string {
  return `${algorithm}-${createHash(algorithm).update(bytes).digest('base64')}`;
}

beforeAll(() => {
  program = new Uint8Array(readFileSync(join(GALLERY, 'story', 'model.pte')));
  expect(program.length).toBeGreaterThan(4 * CHUNK);
});

beforeEach(async () => {
  server = new FileServer(program);
  url = await server.start();
});

afterEach(async () => {
  await server.stop();
});

const isRight = { weightBytes: expect.any(Number), warnings: [] };

describe('from the network', () => {
  it('comes by ranges, each byte once', async () => {
    const { page, context, errors } = await bench.open('/test/blank.html');
    expect(await load(page, url, { cache: 'none' })).toEqual(isRight);
    expect(server.requests.every((each) => each.startsWith('bytes='))).toBe(true);
    expect(server.sent).toBeLessThanOrEqual(program.length);
    expect(errors).toEqual([]);
    await context.close();
  });

  it('comes in one stream from a server without ranges', async () => {
    const { page, context } = await bench.open('/test/blank.html');
    server.faults.noRange = true;
    const integrity = sri(program, 'sha384');
    expect(await load(page, url, { cache: 'none', integrity })).toEqual(isRight);
    expect(server.requests.length).toBe(1);
    await context.close();
  });

  it('comes from another origin that does not show its headers', async () => {
    const { page, context } = await bench.open('/test/blank.html');
    server.faults.hidden = true;
    expect(await load(page, url, { cache: 'none' })).toEqual(isRight);
    await context.close();
  });

  it('is read from a Blob, bytes and a stream', async () => {
    const { page, context } = await bench.open('/test/blank.html');
    const found = await page.evaluate(async (from) => {
      const blob = await (await fetch(from)).blob();
      const froms = [blob, await blob.arrayBuffer(), blob.stream()];
      const sizes: number[] = [];
      for (const each of froms) {
        const module = await runtime.Module.load(each);
        sizes.push(module.stats().weightBytes);
        module.dispose();
      }
      return new Set(sizes).size;
    }, url);
    expect(found).toBe(1);
    await context.close();
  });

  it('says which address fails, and loads another then', async () => {
    const { page, context } = await bench.open('/test/blank.html');
    server.faults.status = 404;
    const missing = await load(page, url);
    expect(missing.error).toMatchObject({ code: 'NotFound' });
    expect(missing.error?.message).toContain(
      `${url}: must be there, got HTTP status 404`,
    );
    delete server.faults.status;
    // The connection breaks wherever it is taken up.
    Object.assign(server.faults, { noRange: true, cutAfter: 3 * CHUNK });
    const broken = await load(page, url);
    expect(broken.error).toMatchObject({ code: 'AccessFailed' });
    expect(broken.error?.message).toContain(url);
    server.faults.cuts = 0;
    server.faults.noRange = false;
    server.bytes = program.subarray(0, program.length - 5 * CHUNK);
    const short = await load(page, url);
    expect(short.error?.message).toContain('the file is cut short');
    server.bytes = program;
    server.faults.etag = '"2"';
    expect(await load(page, url)).toEqual(isRight);
    await context.close();
  });
});

describe.each(['cache', 'opfs'] as const)('kept in %s', (cache) => {
  it('loads when the server is gone, until it is cleared', async () => {
    const { page, context } = await bench.open('/test/blank.html');
    expect(await load(page, url, { cache })).toEqual(isRight);
    expect(server.sent).toBe(program.length);
    expect(await kept(page)).toBe(Math.ceil(program.length / CHUNK) + 1);
    await server.stop();
    const offline = await load(page, url, { cache });
    expect(offline).toMatchObject({ weightBytes: expect.any(Number) });
    expect(offline.warnings).toEqual([expect.stringContaining('as it was kept')]);
    await page.evaluate((from) => runtime.clearCache(from), url);
    expect(await kept(page)).toBe(0);
    expect((await load(page, url, { cache })).error?.message).toContain(
      'must be reachable',
    );
    await server.start();
    await context.close();
  });

  it('is nothing if the digest is another, and the page goes on', async () => {
    const { page, context } = await bench.open('/test/blank.html');
    const altered = program.slice();
    altered.fill(7, 3 * CHUNK, 3 * CHUNK + 100);
    server.bytes = altered;
    const integrity = sri(program);
    // Weights have hashes of their own, which are not to tell here.
    const found = await load(page, url, { cache, integrity, verify: false });
    expect(found.error?.code).toBe('InvalidProgram');
    expect(found.error?.message).toBe(
      `${url}: integrity must be ${integrity}, got ${sri(altered)}; the file was altered, ` +
        'or is another version than was meant',
    );
    expect(await kept(page)).toBe(0);
    server.bytes = program;
    expect(await load(page, url, { cache, integrity })).toEqual(isRight);
    await context.close();
  });

  it('is nothing if its weights are damaged', async () => {
    const { page, context } = await bench.open('/test/blank.html');
    const altered = program.slice();
    altered.fill(7, 3 * CHUNK, 3 * CHUNK + 100);
    server.bytes = altered;
    const { error } = await load(page, url, { cache });
    expect(error?.code).toBe('DelegateInvalidCompatibility');
    expect(error?.message).toContain('the file is damaged');
    expect(await kept(page)).toBe(0);
    server.bytes = program;
    expect(await load(page, url, { cache })).toEqual(isRight);
    await context.close();
  });

  it('is not whole if the tab was closed in the middle', async () => {
    const { page, context } = await bench.open('/test/blank.html');
    const other = await context.newPage();
    await other.goto(page.url());
    server.faults.slow = 25;
    load(page, url, { cache }).catch(() => undefined);
    while (server.sent < 4 * CHUNK) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    await page.close();
    const entries = await kept(other);
    expect(entries).toBeGreaterThan(0);
    expect(entries).toBeLessThan(program.length / CHUNK);
    await context.setOffline(true);
    expect((await load(other, url, { cache })).error?.message).toContain(
      'must be reachable',
    );
    await context.setOffline(false);
    delete server.faults.slow;
    const before = server.sent;
    expect(await load(other, url, { cache })).toEqual(isRight);
    expect(server.sent - before).toBeLessThan(program.length);
    await context.close();
  });
});

describe('a load that is taken up', () => {
  it('fetches only what was not kept', async () => {
    const { page, context } = await bench.open('/test/blank.html');
    const integrity = sri(program);
    const reached = await page.evaluate(async (from) => {
      const controller = new AbortController();
      let reached = 0;
      const loading = runtime.Module.load(from, {
        signal: controller.signal,
        onProgress: ({ stage, loaded, total }) => {
          reached = stage === 'download' ? loaded : reached;
          if (stage === 'download' && loaded > total / 2) {
            controller.abort(new Error('enough'));
          }
        },
      });
      return loading.then(
        () => 'loaded',
        (error) => `${error.message} at ${reached}`,
      );
    }, url);
    expect(reached).toMatch(/^enough at \d+$/);
    const before = server.sent;
    expect(await load(page, url, { integrity })).toEqual(isRight);
    expect(server.sent - before).toBeLessThan(0.7 * program.length);
    await context.close();
  });
});

describe('storage', () => {
  it.each(['cache', 'opfs'] as const)(
    'without room in %s is told, and loads',
    async (cache) => {
      const { page, context } = await bench.open('/test/blank.html');
      const session: CDPSession = await context.newCDPSession(page);
      const origin = new URL(page.url()).origin;
      await session.send('Storage.overrideQuotaForOrigin', {
        origin,
        quotaSize: 3 * CHUNK,
      });
      const found = await load(page, url, { cache });
      expect(found).toMatchObject({ weightBytes: expect.any(Number) });
      expect(found.warnings).toEqual([
        expect.stringContaining('the cache must have room'),
      ]);
      expect(await kept(page)).toBe(0);
      await context.close();
    },
  );
});
