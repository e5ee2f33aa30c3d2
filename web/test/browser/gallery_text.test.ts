/** Pages with text: what is written is, token by token, what Python writes. */

import { describe, expect, it } from 'vitest';
import { FOR_GPUS } from './browser';
import {
  checkFacts,
  expected,
  farthest,
  finished,
  galleryBench,
  keepShots,
  run,
} from './gallery';

const bench = galleryBench(['search', 'story', 'chat']);

const CHAT_TOKENS = 64;
// With kernels for GPUs a token takes a software adapter seconds.
const CHAT_TIME = FOR_GPUS ? 1_200_000 : 400_000;

interface Written {
  prompts: { prompt: string; tokens: number[]; text: string }[];
}

describe('a page with text', () => {
  it('finds sentences by what they mean', async () => {
    const opened = await bench.open('/search.html');
    const { page, context } = opened;
    const python = await expected<{
      sentences: string[];
      queries: { text: string; similarities: number[]; best: number }[];
    }>('search');
    const found = async () => {
      const rows = page.locator('#found li');
      const texts = await rows.locator('span:first-child').allTextContents();
      const values = await rows.evaluateAll((all) =>
        all.map((each) => Number((each as HTMLElement).dataset.value)),
      );
      return new Map(texts.map((text, index) => [text, values[index] as number]));
    };
    await page.waitForSelector('#run:enabled');
    for (const [index, query] of python.queries.entries()) {
      await page.fill('#query', query.text);
      if (index === 0) await run(page);
      else {
        // By the keyboard, too; what it says of the last search is not about this one.
        await page.evaluate(() => document.getElementById('status')?.replaceChildren());
        await page.press('#query', 'Enter');
        await finished(page);
      }
      const rows = await found();
      expect([...rows.keys()][0]).toBe(python.sentences[query.best]);
      const values = python.sentences.map((text) => rows.get(text) ?? Number.NaN);
      expect(farthest(values, query.similarities)).toBeLessThan(2e-3);
    }
    await checkFacts(opened);
    await keepShots(page, 'search');
    await context.close();
  });

  it('tells a story as Python does', async () => {
    const opened = await bench.open('/story.html');
    const { page, context } = opened;
    const [first] = (await expected<Written>('story')).prompts;
    await page.waitForSelector('#run:enabled');
    await page.click('summary');
    await page.fill('#length', '64');
    await page.fill('#prompt', first?.prompt ?? '');
    await run(page);
    const tokens = await page
      .locator('#text [data-tokens]')
      .getAttribute('data-tokens');
    expect(JSON.parse(tokens ?? '')).toEqual(first?.tokens);
    expect(await page.textContent('#text')).toBe(first?.text);
    await checkFacts(opened);
    await keepShots(page, 'story');
    await context.close();
  });

  it(
    'chats as Python does, and can be stopped',
    async () => {
      const opened = await bench.open('/chat.html');
      const { page, context } = opened;
      const { prompts } = await expected<Written>('chat');
      const longest = prompts.find(({ tokens }) => tokens.length === 64);
      await page.waitForSelector('#run:enabled');
      await page.click('summary');
      await page.fill('#length', String(CHAT_TOKENS));
      await page.fill('#prompt', longest?.prompt ?? '');
      await page.press('#prompt', 'Enter');
      await finished(page, CHAT_TIME);
      const answers = page.locator('.turn.assistant');
      const tokens = await answers.first().getAttribute('data-tokens');
      expect(JSON.parse(tokens ?? '')).toEqual(longest?.tokens.slice(0, CHAT_TOKENS));
      const text = await answers.first().textContent();
      expect(longest?.text.startsWith(text || 'an answer')).toBe(true);
      await page.evaluate(() =>
        document.querySelector('details')?.toggleAttribute('open'),
      );
      await keepShots(page, 'chat');
      await page.click('summary');
      await page.fill('#length', '200');
      await page.click('#prompts button:last-child');
      await page.click('#run:enabled');
      await page.waitForFunction(
        () => /^\d+ tokens$/.test(document.getElementById('status')?.textContent ?? ''),
        undefined,
        { timeout: CHAT_TIME },
      );
      await page.click('#stop');
      await page.waitForSelector('#run:enabled');
      expect(await page.textContent('#status')).toBe('Stopped.');
      await checkFacts(opened);
      await context.close();
    },
    CHAT_TIME + 100_000,
  );
});
