/** Pages with sound: a file is chosen, and the result is Python's. */

import { describe, expect, it } from 'vitest';
import {
  checkFacts,
  expected,
  farthest,
  galleryBench,
  keepShots,
  modelFile,
  run,
} from './gallery';

const bench = galleryBench(['transcribe', 'pitch']);

describe('a page with sound', () => {
  it('writes down what is said', async () => {
    const opened = await bench.open('/transcribe.html');
    const { page, context } = opened;
    const python = await expected<{ 'speech.wav': { text: string } }>('transcribe');
    await page.waitForSelector('#run:enabled');
    await page.setInputFiles('#file', modelFile('transcribe', 'speech.wav'));
    await run(page, 170_000);
    expect(await page.textContent('#text')).toBe(python['speech.wav'].text);
    await checkFacts(opened);
    await keepShots(page, 'transcribe');
    await context.close();
  }, 200_000);

  it('hears notes', async () => {
    const opened = await bench.open('/pitch.html');
    const { page, context } = opened;
    const python = (
      await expected<{ 'notes.wav': { hertz: number[]; confidence: number[] } }>(
        'pitch',
      )
    )['notes.wav'];
    await page.waitForSelector('#run:enabled');
    await page.setInputFiles('#file', modelFile('pitch', 'notes.wav'));
    await run(page);
    expect(await page.textContent('#notes')).toMatch(/^A3\s+C♯4\s+E4\s+A4\s+E5$/);
    const column = (place: number) =>
      page
        .locator(`#frames td:nth-child(${place})`)
        .evaluateAll((all) =>
          all.map((each) => Number((each as HTMLElement).dataset.value)),
        );
    const cents = (values: number[]) => values.map((value) => 1200 * Math.log2(value));
    expect(farthest(cents(await column(2)), cents(python.hertz))).toBeLessThan(1);
    expect(farthest(await column(4), python.confidence)).toBeLessThan(1e-3);
    await checkFacts(opened);
    await keepShots(page, 'pitch');
    await context.close();
  });
});
