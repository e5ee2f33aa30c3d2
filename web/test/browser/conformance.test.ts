/** The programs of test/portable, as Python plays them, in a browser. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { Bench, BUILD, type Opened } from './browser';

declare const player: { play(name: string): Promise<string[]> };

const FOLDER = join(BUILD, 'programs');
const names = readdirSync(FOLDER)
  .filter((file) => file.endsWith('.json'))
  .map((file) => JSON.parse(readFileSync(join(FOLDER, file), 'utf8')))
  .filter(({ kind }) => kind === 'conformance')
  .map(({ file }) => String(file).replace(/\.pte$/, ''));

const bench = new Bench();
let opened: Opened;

beforeAll(async () => {
  opened = await bench.open('/test/play.html');
});

test('there are programs', () => {
  expect(names.length).toBeGreaterThan(60);
});

test.each(names)('%s', async (name) => {
  const found = await opened.page.evaluate((name) => player.play(name), name);
  expect(found).toEqual([]);
  expect(opened.errors.splice(0)).toEqual([]);
});
