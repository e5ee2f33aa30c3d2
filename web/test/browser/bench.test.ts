/** The bench page, used as a visitor does: one small model in both runtimes. */

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { beforeAll, describe, expect, it } from 'vitest';
import type { BenchResults } from '../../site/bench/results';
import { Bench, BUILD, WEB } from './browser';

const GALLERY = join(BUILD, '..', 'gallery');
const SITE = join(BUILD, 'bench-site');
// The same model without its ONNX file.
const ALONE = join(BUILD, 'bench-alone');
const bench = new Bench({
  '/': SITE,
  '/models/': GALLERY,
  '/alone/': SITE,
  '/alone/models/': ALONE,
  '/none/': SITE,
});

beforeAll(async () => {
  if (!existsSync(join(GALLERY, 'pitch', 'model.onnx'))) {
    throw new Error(
      'build/gallery must have pitch with its ONNX file, got none; ' +
        'run python examples/gallery build/gallery pitch --onnx',
    );
  }
  execFileSync(process.execPath, [join(WEB, 'build_site.mjs'), SITE]);
  await mkdir(join(ALONE, 'pitch'), { recursive: true });
  const text = await readFile(join(GALLERY, 'pitch', 'model.json'), 'utf8');
  const { onnx: _, ...card } = JSON.parse(text);
  await writeFile(join(ALONE, 'pitch', 'model.json'), JSON.stringify(card));
  const program = join('pitch', 'model.pte');
  await copyFile(join(GALLERY, program), join(ALONE, program));
});

/** What is in the file that a button saves. */
async function saved(page: Page, button: string): Promise<[string, string]> {
  const [file] = await Promise.all([page.waitForEvent('download'), page.click(button)]);
  return [file.suggestedFilename(), await readFile(await file.path(), 'utf8')];
}

async function measure(page: Page): Promise<void> {
  await page.click('#run:enabled');
  await page.waitForFunction(
    () => document.getElementById('status')?.textContent === 'Done.',
    undefined,
    { timeout: 110_000 },
  );
}

describe('the bench page', () => {
  it('runs a model in both, and gives table, picture and file', async () => {
    const { page, context, errors } = await bench.open(
      '/bench.html?models=pitch&rounds=2',
    );
    const size = () => page.textContent('#size-ort');
    await expect.poll(size, { timeout: 20_000 }).toMatch(/^1\.30\.0, 6\.\d MB/);
    const sizes = () => page.inputValue('#sizes');
    await expect.poll(sizes, { timeout: 20_000 }).toBe('small');
    await measure(page);
    const cells = await page.locator('#rows tr > *').allTextContents();
    expect(cells[0]).toBe('CREPE tiny, 8x1024');
    expect(cells[1]).toMatch(/^[\d.]+ m?s ±\d+%$/);
    expect(cells[2]).toMatch(/^[\d.]+ m?s ±\d+%$/);
    expect(cells[3]).toMatch(/^[\d.]+x$/);
    expect(await page.textContent('#summary')).toContain('geometric mean of 1 model,');

    const [name, text] = await saved(page, '#save-json');
    expect(name).toBe('executorch-webgpu-bench.json');
    const results = JSON.parse(text) as BenchResults;
    expect(results.adapter).toMatchObject({ vendor: 'google', isFallback: true });
    const [result] = results.cases;
    expect(result?.difference).toBeLessThan(1e-3);
    const { ours, ort } = result?.engines ?? {};
    expect(ours?.samples).toHaveLength(2);
    expect(ours?.failed).toBeUndefined();
    expect(ort?.samples).toHaveLength(2);
    expect(ort?.failed).toBeUndefined();
    expect(ort?.nodes?.WebGpuExecutionProvider).toBeGreaterThan(10);
    expect(ort?.firstMs).toBeGreaterThan(Math.min(...(ort?.samples ?? [])));

    const box = await page.locator('#chart svg').boundingBox();
    expect(box?.width).toBeGreaterThan(600);
    const [picture, svg] = await saved(page, '#save-chart');
    expect(picture).toBe('executorch-webgpu-bench.svg');
    expect(svg).toContain('CREPE tiny, 8x1024');
    expect(svg.match(/class="bar"/g)).toHaveLength(1);
    await mkdir(join(BUILD, 'screenshots'), { recursive: true });
    const path = join(BUILD, 'screenshots', 'bench.png');
    await page.screenshot({ path, fullPage: true });
    // The peer warns of nodes on the CPU, which the page counts.
    expect(await page.textContent('#notes')).toMatch(/\d+ of \d+ nodes on CPU/);
    expect(errors.filter((each) => !each.includes('[W:onnxruntime:'))).toEqual([]);
    await context.close();
  });

  it('says that a model has no peer, and times ours alone', async () => {
    const { page, context } = await bench.open(
      '/alone/bench.html?models=pitch&rounds=1',
    );
    await measure(page);
    expect(await page.textContent('#notes')).toContain('no ONNX file of this model');
    const cells = await page.locator('#rows td').allTextContents();
    expect(cells[0]).toMatch(/^[\d.]+ m?s/);
    expect(cells.slice(1, 3)).toEqual(['–', '–']);
    expect(await page.textContent('#chart')).toContain('No model was run by both.');
    await context.close();
  });

  it('names a model that is not there, and stays usable', async () => {
    const { page, context } = await bench.open(
      '/none/bench.html?models=pitch&rounds=1',
    );
    await page.click('#run:enabled');
    await page.waitForSelector('#error:not([hidden])');
    expect(await page.textContent('#error')).toContain('model.json must be there');
    expect(await page.isEnabled('#run')).toBe(true);
    await context.close();
  });
});
