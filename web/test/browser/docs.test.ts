/** The page of docs/web.md, as it stands there. */

import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Bench, BUILD, WEB } from './browser';

const FOLDER = join(BUILD, 'example');
const bench = new Bench({ '/example/': FOLDER });

test('the example of the documentation runs', async () => {
  const text = readFileSync(join(WEB, '..', 'docs', 'web.md'), 'utf8');
  const [, html = ''] = /```html\n(.*?)```/s.exec(text) ?? [];
  expect(html).toContain('Module.load');
  const told = JSON.parse(
    readFileSync(join(BUILD, 'programs', 'documented.json'), 'utf8'),
  );
  mkdirSync(FOLDER, { recursive: true });
  writeFileSync(join(FOLDER, 'index.html'), html);
  copyFileSync(join(BUILD, 'programs', told.file), join(FOLDER, 'model.pte'));
  copyFileSync(
    join(WEB, 'dist', 'executorch-webgpu.js'),
    join(FOLDER, 'executorch-webgpu.js'),
  );
  const { page, context, errors } = await bench.open('/example/');
  const result = page.locator('#result');
  await expect.poll(() => result.textContent(), { timeout: 60_000 }).not.toBe('');
  const shown = (await result.textContent()) ?? '';
  expect(shown).toMatch(/^\[3,16\] /);
  const values = shown.split(' ').slice(1).map(Number);
  expect(values.length).toBe(16);
  values.forEach((value, i) => {
    expect(value).toBeCloseTo(told.first_row[i], 5);
  });
  expect(errors).toEqual([]);
  await context.close();
});
