/** What may go wrong on a page: it says what happened, and stays usable. */

import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { BrowserContext, Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { BUILD } from './browser';
import {
  errorOf,
  GALLERY,
  galleryBench,
  keepShots,
  modelFile,
  run,
  SITE,
} from './gallery';
import { startServer } from './server';

const DAMAGED = join(BUILD, 'damaged-models');
const PAGES = ['classify', 'cutout', 'enlarge', 'search', 'transcribe', 'pitch'];
const bench = galleryBench(['pitch', 'classify'], {
  '/none/': SITE,
  '/none/models/': join(BUILD, 'no-models'),
  '/damaged/': SITE,
  '/damaged/models/': DAMAGED,
});

/** Opens pages in which something is changed before they start. */
async function changed(change: () => void): Promise<[BrowserContext, Page, string[]]> {
  const context = await bench.browser.newContext();
  await context.addInitScript(change);
  const page = await context.newPage();
  const errors: string[] = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('console', (each) => each.type() === 'error' && errors.push(each.text()));
  return [context, page, errors];
}

describe('a page', () => {
  it('says what to do without WebGPU', async () => {
    const [context, page, errors] = await changed(() => {
      Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined });
    });
    for (const name of [...PAGES, 'story', 'chat', 'index', 'program']) {
      await page.goto(`${bench.server.url}/${name}.html`);
      const notice = page.locator('#missing');
      await notice.waitFor();
      expect(await notice.textContent()).toContain('Chrome or Edge from 113 on');
      if (name === 'pitch') {
        expect(await page.isDisabled('#run')).toBe(true);
        expect(await page.textContent('#adapter')).toBe('none');
        await keepShots(page, 'no-webgpu');
      }
    }
    expect(errors).toEqual([]);
    await context.close();
  });

  it('says what to do without an adapter', async () => {
    const [context, page, errors] = await changed(() => {
      GPU.prototype.requestAdapter = () => Promise.resolve(null);
    });
    await page.goto(`${bench.server.url}/pitch.html`);
    await page.waitForSelector('#missing:visible');
    expect(await page.textContent('#missing')).toContain('hardware acceleration');
    expect(errors).toEqual([]);
    await context.close();
  });

  it('says how to export a model that is not there', async () => {
    const { page, context } = await bench.open('/none/pitch.html');
    await page.waitForSelector('#missing:visible');
    expect(await page.textContent('#missing')).toContain(
      'python examples/gallery build/gallery pitch',
    );
    expect(await page.isDisabled('#run')).toBe(true);
    await context.close();
  });

  it('refuses a damaged model, and takes a whole one after it', async () => {
    const place = join(DAMAGED, 'pitch');
    await mkdir(place, { recursive: true });
    for (const file of ['model.json', 'notes.wav']) {
      await copyFile(modelFile('pitch', file), join(place, file));
    }
    const program = await readFile(modelFile('pitch', 'model.pte'));
    const altered = Buffer.from(program);
    altered.writeUInt8((altered.at(-1000) ?? 0) ^ 1, altered.length - 1000);
    await writeFile(join(place, 'model.pte'), altered);
    const { page, context } = await bench.open('/damaged/pitch.html');
    await page.click('#run:enabled');
    await page.waitForSelector('#error:visible');
    expect(await errorOf(page)).toMatch(/must (be|have)/);
    await writeFile(join(place, 'model.pte'), program.subarray(0, program.length / 2));
    await page.click('#run:enabled');
    await page.waitForSelector('#run:enabled');
    await page.waitForSelector('#error:visible');
    await keepShots(page, 'damaged');
    await writeFile(join(place, 'model.pte'), program);
    await run(page);
    expect(await page.textContent('#notes')).toContain('A4');
    await context.close();
  });

  it('runs where there is no room to keep its model, and says so', async () => {
    const { page, context } = await bench.open('/pitch.html');
    const session = await context.newCDPSession(page);
    const origin = new URL(page.url()).origin;
    await session.send('Storage.overrideQuotaForOrigin', {
      origin,
      quotaSize: 100_000,
    });
    await run(page);
    expect(await page.textContent('#notes')).toContain('A4');
    expect(await page.textContent('#warning:visible')).toContain(
      'the cache must have room, got QuotaExceededError',
    );
    await context.close();
  });

  it('refuses a file of another kind, and takes the next', async () => {
    const { page, context, errors } = await bench.open('/classify.html');
    await page.waitForSelector('#run:enabled');
    const text = { name: 'a.png', mimeType: 'image/png', buffer: Buffer.from('text') };
    await page.setInputFiles('#file', text);
    await page.waitForSelector('#error:visible');
    expect(await errorOf(page)).toContain('must be a picture that this browser reads');
    await page.setInputFiles('#file', modelFile('classify', 'coffee.png'));
    await page.waitForSelector('#chosen[aria-label^="coffee.png"]');
    expect(await errorOf(page)).toBe('');
    expect(errors).toEqual([]);
    await context.close();
  });

  it('works without a network when it was there once', async () => {
    const server = await startServer({ '/': SITE, '/models/': GALLERY });
    const context = await bench.browser.newContext();
    const page = await context.newPage();
    await page.goto(`${server.url}/pitch.html`);
    await run(page);
    const kept = () =>
      page.evaluate(async () => {
        const fetched = performance
          .getEntriesByType('resource')
          .map(({ name }) => name);
        const own = [
          location.href,
          ...fetched.filter((each) => !each.endsWith('.pte')),
        ];
        const found = await Promise.all(own.map((each) => caches.match(each)));
        return own.filter((_, index) => !found[index]);
      });
    await expect.poll(kept, { timeout: 20_000 }).toEqual([]);
    await server.close();
    await page.reload();
    await run(page);
    expect(await page.textContent('#notes')).toContain('A4');
    await context.close();
  });

  it('has a name for whatever can be used, and a way round the menu', async () => {
    const { page, context } = await bench.open('/index.html');
    await page.keyboard.press('Tab');
    expect(await page.textContent(':focus')).toBe('Skip to the content');
    await keepShots(page, 'index');
    for (const name of [...PAGES, 'story', 'chat', 'program']) {
      await page.goto(`${bench.server.url}/${name}.html`);
      const nameless = await page
        .locator('input, select, textarea, button, a, audio, canvas[role=img]')
        .evaluateAll((all) =>
          all
            .filter((each) => each.tagName !== 'AUDIO' && !(each as HTMLElement).hidden)
            .filter((each) => {
              const labels = (each as HTMLInputElement).labels?.length ?? 0;
              const text = each.getAttribute('aria-label') ?? each.textContent?.trim();
              return labels === 0 && !text && each.tagName !== 'CANVAS';
            })
            .map((each) => each.outerHTML),
        );
      expect(nameless).toEqual([]);
    }
    await context.close();
  });
});
