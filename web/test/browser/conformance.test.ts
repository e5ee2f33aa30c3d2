/** The programs of test/portable, as Python plays them, in a browser. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Bench, BUILD, type Opened } from './browser';

declare const player: { play(name: string): Promise<string[]> };

const FOLDER = join(BUILD, 'programs');
const names = readdirSync(FOLDER)
  .filter((file) => file.endsWith('.json'))
  .map((file) => JSON.parse(readFileSync(join(FOLDER, file), 'utf8')))
  .filter(({ kind }) => kind === 'conformance')
  .map(({ file }) => String(file).replace(/\.pte$/, ''));

const bench = new Bench();
// A browser compiles kernels on one core: two of them share the programs.
const idle: Opened[] = [];
const waiting: ((opened: Opened) => void)[] = [];
let second: Browser;

beforeAll(async () => {
  second = await bench.launch();
  idle.push(await bench.open('/test/play.html'));
  idle.push(await bench.open('/test/play.html', second));
});

afterAll(() => second?.close());

/** Runs `work` with a page that nobody else has. */
async function withPage(work: (opened: Opened) => Promise<void>): Promise<void> {
  const opened = idle.pop() ?? (await new Promise<Opened>((got) => waiting.push(got)));
  try {
    await work(opened);
  } finally {
    const next = waiting.shift();
    if (next) next(opened);
    else idle.push(opened);
  }
}

test('there are programs', () => {
  expect(names.length).toBeGreaterThan(60);
});

test.concurrent.each(names)('%s', (name) =>
  withPage(async ({ page, errors }) => {
    const found = await page.evaluate((name) => player.play(name), name);
    expect(found).toEqual([]);
    expect(errors.splice(0)).toEqual([]);
  }),
);
