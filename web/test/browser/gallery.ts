/** The gallery's pages in a browser, used as a person does. */

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { beforeAll, expect } from 'vitest';
import { Bench, BUILD, type Opened, WEB } from './browser';

export const GALLERY = join(BUILD, '..', 'gallery');
export const SITE = join(BUILD, 'site');
const SHOTS = join(BUILD, '..', 'screenshots');
// What a run may take on a software adapter beside other work.
const LONGEST = 110_000;

/** A browser and a server with the site and some of its models. */
export function galleryBench(
  models: readonly string[],
  folders: Record<string, string> = {},
): Bench {
  beforeAll(async () => {
    const missing = models.filter((each) => !existsSync(modelFile(each, 'model.pte')));
    if (missing.length > 0) {
      throw new Error(
        `build/gallery must have ${missing.join(', ')}, got none; run` +
          ' python examples/gallery build/gallery',
      );
    }
    execFileSync(process.execPath, [join(WEB, 'build_site.mjs'), SITE, '--no-bench']);
    await mkdir(SHOTS, { recursive: true });
  });
  return new Bench({ '/': SITE, '/models/': GALLERY, ...folders });
}

/** A file of a model, such as one of its samples. */
export function modelFile(model: string, file: string): string {
  return join(GALLERY, model, file);
}

/** What Python gives for a model's samples. */
export async function expected<T>(model: string): Promise<T> {
  return JSON.parse(await readFile(modelFile(model, 'expected.json'), 'utf8')) as T;
}

/** Presses the button and waits until the page says that it is done. */
export async function run(page: Page, timeout = LONGEST): Promise<void> {
  await page.click('#run:enabled');
  await finished(page, timeout);
}

/** Waits for the end of what was started; an error on the page is one of the test. */
export async function finished(page: Page, timeout = LONGEST): Promise<void> {
  await page.waitForFunction(
    () =>
      document.getElementById('status')?.textContent === 'Done.' ||
      document.getElementById('error')?.hidden === false,
    undefined,
    { timeout },
  );
  expect(await errorOf(page)).toBe('');
}

/** What the page says went wrong; '' if nothing. */
export async function errorOf(page: Page): Promise<string> {
  const error = page.locator('#error');
  return (await error.isHidden()) ? '' : ((await error.textContent()) ?? '');
}

/** Pictures of the page as it is: on a desk by day, in a hand at night. */
export async function keepShots(page: Page, name: string): Promise<void> {
  await page.screenshot({ path: join(SHOTS, `${name}.png`), fullPage: true });
  await page.setViewportSize({ width: 390, height: 844 });
  await page.emulateMedia({ colorScheme: 'dark' });
  // Nothing may be wider than the phone.
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  await page.screenshot({ path: join(SHOTS, `${name}-phone.png`), fullPage: true });
  expect(width).toBeLessThanOrEqual(390);
}

/** What every page shows when it has run, without an error that nobody saw. */
export async function checkFacts({ page, errors }: Opened): Promise<void> {
  expect(await page.textContent('#adapter')).toContain('swiftshader');
  expect(await page.textContent('#size')).toMatch(/^[\d.]+ MB, fetched once$/);
  expect(await page.textContent('#load')).toMatch(/^[\d.]+ m?s$/);
  expect(await page.textContent('#time')).toMatch(/^[\d.]+ m?s/);
  expect(errors).toEqual([]);
}

/** The bytes of a canvas, RGBA. */
export async function pixelsOf(
  page: Page,
  selector: string,
): Promise<{ width: number; height: number; data: Buffer }> {
  const found = await page.locator(selector).evaluate((canvas: HTMLCanvasElement) => {
    const { width, height } = canvas;
    const context = canvas.getContext('2d') as CanvasRenderingContext2D;
    const { data } = context.getImageData(0, 0, width, height);
    let text = '';
    for (const byte of data) text += String.fromCharCode(byte);
    return { width, height, text: btoa(text) };
  });
  const { width, height, text } = found;
  return { width, height, data: Buffer.from(text, 'base64') };
}

/** Means of one channel, 0 to 1, over a grid of 4x4. */
export function grid(
  { width, height, data }: { width: number; height: number; data: Buffer },
  channel: number,
): number[] {
  const sums = new Array<number>(16).fill(0);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const cell = Math.floor((y * 4) / height) * 4 + Math.floor((x * 4) / width);
      const value = data[(y * width + x) * 4 + channel] as number;
      sums[cell] = (sums[cell] as number) + value / 255;
    }
  }
  return sums.map((sum) => sum / ((width * height) / 16));
}

/** How far two rows of numbers are from each other at most. */
export function farthest(a: readonly number[], b: readonly number[]): number {
  expect(a.length).toBe(b.length);
  const away = (value: number, index: number) => Math.abs(value - (b[index] as number));
  return a.map(away).reduce((most, each) => Math.max(most, each), 0);
}
