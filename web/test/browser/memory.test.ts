/** What a page holds while a program of 100 MB comes: not the program. */

import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { BUILD, FLAGS, WEB } from './browser';
import { startServer } from './server';

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const GALLERY = join(BUILD, '..', 'gallery');
const MB = 1e6;

/** Bytes of memory that are a process's own or shared with another, not of files. */
function resident(pid: number): number {
  let status: string;
  try {
    status = readFileSync(`/proc/${pid}/status`, 'utf8');
  } catch {
    return 0; // it has ended
  }
  const field = (name: string): number =>
    1024 * Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(status)?.[1] ?? 0);
  return field('RssAnon') + field('RssShmem');
}

/** The processes in which pages of a browser run. */
function renderers(profile: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const args = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
        return args.includes('--type=renderer') && args.includes(profile);
      } catch {
        return false; // it has ended
      }
    });
}

/** Hears what the page tells, once each. */
async function listen(): Promise<{
  url: string;
  heard: (what: string) => Promise<string>;
  close: () => void;
}> {
  const waiting = new Map<string, (text: string) => void>();
  const server = createServer((request, response) => {
    let text = '';
    request.on('data', (piece) => {
      text += piece;
    });
    request.on('end', () => {
      response.end();
      waiting.get(request.url ?? '')?.(text);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    heard: (what) => new Promise((resolve) => waiting.set(`/${what}`, resolve)),
    close: () => server.close(),
  };
}

interface Peak {
  /** By V8's own count, the largest that was seen. */
  heap: number;
  /** Of the processes, the largest that was seen, beyond what there was before. */
  grown: number;
  weights: number;
}

/**
 * Node's own retries only try the folder itself again, and leave in it what the browser's
 * other processes write as they end, a little later than the first of them.
 */
async function removed(folder: string): Promise<void> {
  for (let left = 50; ; left--) {
    try {
      rmSync(folder, { recursive: true, force: true });
      return;
    } catch (error) {
      if (left === 0) throw error;
      await sleep(200);
    }
  }
}

/**
 * Loads in a browser that nobody drives: one that is driven keeps what came over the
 * network for who drives it.
 */
async function measure(from: string, cache: string): Promise<Peak> {
  const files = await startServer({
    '/dist/': join(WEB, 'dist'),
    '/programs/': join(BUILD, 'programs'),
    '/test/': join(WEB, 'test', 'browser', 'pages'),
    '/gallery/': GALLERY,
  });
  const reports = await listen();
  const profile = mkdtempSync(join(tmpdir(), 'memory-'));
  const query = new URLSearchParams({ cache, from, report: reports.url });
  const begun = reports.heard('begin');
  const ended = reports.heard('end');
  const browser = spawn(
    CHROMIUM,
    [
      ...FLAGS,
      '--headless=new',
      '--enable-precise-memory-info',
      `--user-data-dir=${profile}`,
      `${files.url}/test/memory.html?${query}`,
    ],
    { stdio: 'ignore' },
  );
  const gone = new Promise<void>((resolve) => browser.once('exit', () => resolve()));
  try {
    // If the page fails before, that is told as its end.
    const early = await Promise.race([begun.then(() => undefined), ended]);
    expect(early).toBe(undefined);
    const pids = renderers(profile);
    const all = (): number => pids.reduce((sum, pid) => sum + resident(pid), 0);
    const before = all();
    let most = before;
    const watching = setInterval(() => {
      most = Math.max(most, all());
    }, 10);
    const told = JSON.parse(await ended);
    clearInterval(watching);
    expect(told.error).toBe(undefined);
    return { ...told, grown: most - before };
  } finally {
    browser.kill();
    await gone;
    reports.close();
    await files.close();
    await removed(profile);
  }
}

describe('a program of 100 MB', () => {
  // Where other work takes the cores, garbage may be collected too late for the limit:
  // one of three loads must keep it.
  it.each(['none', 'cache', 'opfs', 'file'])('from %s', { retry: 2 }, async (cache) => {
    const { size } = statSync(join(GALLERY, 'chat', 'model.pte'));
    expect(size).toBeGreaterThan(100 * MB);
    const { heap, grown, weights } = await measure('/gallery/chat/model.pte', cache);
    console.log(
      `${cache}: JS heap at most ${(heap / MB).toFixed(1)} MB, host memory at most ` +
        `${(grown / MB).toFixed(1)} MB more than before`,
    );
    expect(weights).toBeGreaterThan(90 * MB);
    expect(heap).toBeLessThan(100 * MB);
    expect(grown).toBeLessThan(64 * MB);
  });
});
