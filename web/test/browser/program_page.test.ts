/** The page for any program: inputs, run, outputs, profile. */

import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import {
  errorOf,
  expected,
  finished,
  galleryBench,
  keepShots,
  modelFile,
  run,
} from './gallery';

const bench = galleryBench(['pitch']);

/** The first samples of a WAV file of 16 bits. */
async function samples(path: string, count: number): Promise<number[]> {
  const file = await readFile(path);
  return Array.from(
    { length: count },
    (_, at) => file.readInt16LE(44 + 2 * at) / 32768,
  );
}

describe('the page for any program', () => {
  it('runs one with given numbers, and times its kernels', async () => {
    const opened = await bench.open('/program.html?model=models/pitch/model.pte');
    const { page, context, errors } = opened;
    const python = (
      await expected<{ 'notes.wav': { hertz: number[]; confidence: number[] } }>(
        'pitch',
      )
    )['notes.wav'];
    await page.waitForSelector('#form:visible');
    expect(await page.textContent('legend')).toMatch(/^Input 0: float32 \[.+, 1024\]$/);
    await page.getByLabel('Input 0, size 0').fill('1');
    await page.getByLabel('Input 0, values').selectOption('numbers');
    const numbers = page.getByLabel('Input 0, numbers');
    await numbers.fill('1 2 three');
    await page.click('#run:enabled');
    await page.waitForSelector('#error:visible');
    expect(await errorOf(page)).toContain('input 0 must have numbers, got "three"');
    await numbers.fill('1, 2, 3');
    await page.click('#run:enabled');
    await page.waitForFunction(() =>
      document.getElementById('error')?.textContent?.includes('got 3'),
    );
    const sound = await samples(modelFile('pitch', 'notes.wav'), 1024);
    await numbers.fill(sound.join(' '));
    await run(page);
    const titles = await page.locator('#result h2').allTextContents();
    expect(titles).toEqual(['Output 0: float32 [1]', 'Output 1: float32 [1]']);
    const values = await page
      .locator('#result code')
      .evaluateAll((all) =>
        all.map((each) => JSON.parse((each as HTMLElement).dataset.values ?? '')[0]),
      );
    expect(values[0]).toBeCloseTo(python.hertz[0] ?? 0, 1);
    expect(values[1]).toBeCloseTo(python.confidence[0] ?? 0, 3);
    await page.click('#measure');
    await page.waitForSelector('#kernels tbody tr');
    expect(await page.locator('#kernels tbody tr').count()).toBeGreaterThan(5);
    expect(await page.textContent('#kernels')).toContain('convolution');
    await keepShots(page, 'program');
    expect(errors).toEqual([]);
    await context.close();
  });

  it('takes a file of the visitor, and refuses what is no program', async () => {
    const { page, context, errors } = await bench.open('/program.html');
    await page.setInputFiles('#file', {
      name: 'a.pte',
      mimeType: 'application/octet-stream',
      buffer: Buffer.alloc(1000),
    });
    await page.waitForSelector('#error:visible');
    expect(await errorOf(page)).toContain('must');
    expect(await page.isHidden('#form')).toBe(true);
    await page.setInputFiles('#file', modelFile('pitch', 'model.pte'));
    await page.waitForSelector('#form:visible');
    await page.getByLabel('Input 0, size 0').fill('99');
    await page.click('#run:enabled');
    // The browser's own check of the field, and no run.
    expect(await page.locator(':invalid').count()).toBeGreaterThan(0);
    await page.getByLabel('Input 0, size 0').fill('2');
    await page.click('#run:enabled');
    await finished(page);
    expect(await page.textContent('#result h2')).toBe('Output 0: float32 [2]');
    expect(errors).toEqual([]);
    await context.close();
  });
});
