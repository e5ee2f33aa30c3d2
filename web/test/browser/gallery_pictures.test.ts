/** Pages with pictures: a file is chosen, and the result is Python's. */

import { describe, expect, it } from 'vitest';
import {
  checkFacts,
  expected,
  farthest,
  galleryBench,
  grid,
  keepShots,
  modelFile,
  pixelsOf,
  run,
} from './gallery';

const bench = galleryBench(['classify', 'cutout', 'enlarge']);

interface Classified {
  top5: { label: string; probability: number }[];
}

describe('a page with pictures', () => {
  it('names what is in a file, and in a sample', async () => {
    const opened = await bench.open('/classify.html');
    const { page, context } = opened;
    const python = await expected<Record<string, Classified>>('classify');
    const check = async (file: string) => {
      const rows = page.locator('#classes li');
      const labels = await rows.locator('span:first-child').allTextContents();
      const values = await rows.evaluateAll((all) =>
        all.map((each) => Number((each as HTMLElement).dataset.value)),
      );
      const wanted = (python[file] as Classified).top5;
      expect(labels).toEqual(wanted.map((each) => each.label));
      expect(
        farthest(
          values,
          wanted.map((each) => each.probability),
        ),
      ).toBeLessThan(1e-4);
    };
    await page.waitForSelector('#run:enabled');
    await page.setInputFiles('#file', modelFile('classify', 'coffee.png'));
    await page.waitForSelector('#chosen[aria-label^="coffee.png, 600 by 400"]');
    await run(page);
    await check('coffee.png');
    await checkFacts(opened);
    await page.getByLabel('Cat').check({ force: true });
    await page.waitForSelector('#chosen[aria-label^="cat.png"]');
    await run(page);
    await check('cat.png');
    await keepShots(page, 'classify');
    await page.click('#about a');
    expect(await page.textContent('pre')).toContain('EfficientNet-Lite0');
    await context.close();
  });

  it('cuts out a person', async () => {
    const opened = await bench.open('/cutout.html');
    const { page, context } = opened;
    const python = await expected<{
      'astronaut.png': Record<string, { mask: { grid: number[] }; foreground: number }>;
    }>('cutout');
    const wanted = python['astronaut.png']['160'];
    await page.waitForSelector('#run:enabled');
    await page.setInputFiles('#file', modelFile('cutout', 'astronaut.png'));
    await page.selectOption('#side', '160');
    await run(page);
    const cut = await pixelsOf(page, '#cut');
    expect([cut.width, cut.height]).toEqual([384, 384]);
    expect(farthest(grid(cut, 3), wanted?.mask.grid ?? [])).toBeLessThan(0.01);
    await keepShots(page, 'cutout');
    await page.selectOption('#behind', 'mask');
    await page.waitForFunction(
      () => (document.getElementById('cut') as HTMLCanvasElement).width === 160,
    );
    const mask = await pixelsOf(page, '#cut');
    expect(farthest(grid(mask, 0), wanted?.mask.grid ?? [])).toBeLessThan(0.003);
    const front = mask.data.filter((byte, at) => at % 4 === 0 && byte > 127).length;
    expect(front / 160 ** 2).toBeCloseTo(wanted?.foreground ?? 0, 2);
    await checkFacts(opened);
    await context.close();
  });

  it('enlarges a picture', async () => {
    const opened = await bench.open('/enlarge.html');
    const { page, context } = opened;
    await page.waitForSelector('#run:enabled');
    await page.setInputFiles('#file', modelFile('enlarge', 'coffee.png'));
    await run(page);
    const large = await pixelsOf(page, '#after');
    expect([large.width, large.height]).toEqual([256, 192]);
    await page.evaluate(async () => {
      const image = new Image();
      image.src = 'models/enlarge/coffee_enlarged.png';
      await image.decode();
      const canvas = document.createElement('canvas');
      [canvas.id, canvas.width, canvas.height] = ['python', 256, 192];
      canvas.getContext('2d')?.drawImage(image, 0, 0);
      canvas.hidden = true;
      document.body.append(canvas);
    });
    const python = await pixelsOf(page, '#python');
    expect(farthest([...large.data], [...python.data])).toBeLessThanOrEqual(1);
    await keepShots(page, 'enlarge');
    await checkFacts(opened);
    await context.close();
  });
});
