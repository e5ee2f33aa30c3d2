/** Finds sentences by what they mean. */

import { type CardSize, fetchFile, portOf } from '../../src/model_card';
import { Module } from '../../src/module';
import { cosine, embed, largest, loadTokenizer } from '../../src/text';
import { bars, byId } from '../shared/dom';
import { startPage } from '../shared/page';
import { offer } from '../shared/samples';

const QUERIES = ['pets resting', 'baking', 'economy and money'];

await startPage('search', async (page) => {
  const { card, folder } = page;
  const sentences = byId('sentences', HTMLTextAreaElement);
  const query = byId('query', HTMLInputElement);
  const [sample] = card.samples;
  if (sample) {
    sentences.value = await (await fetchFile(new URL(sample.file, folder))).text();
  }
  offer(byId('queries'), QUERIES, (text) => {
    query.value = text;
    page.form.requestSubmit();
  });
  const dims = portOf(card, 'inputs').dims as [CardSize, CardSize];
  const limits = { batch: dims[0].max, length: dims[1].max };
  const load = page.once(async (options) => {
    const file = new URL(card.tokenizer ?? 'tokenizer.json', folder);
    const tokenizer = await loadTokenizer(file, options.signal);
    const { file: program, integrity } = card.program;
    const url = new URL(program, folder).href;
    return { tokenizer, module: await Module.load(url, { integrity, ...options }) };
  });
  // The sentences seldom change between two questions.
  const known = new Map<string, Float32Array>();
  page.onRun(async (signal) => {
    const lines = sentences.value.split('\n').filter((line) => line.trim());
    if (lines.length === 0) {
      throw new RangeError('there must be a sentence to search, got none');
    }
    const { module, tokenizer } = await load(signal);
    const scores = await page.timed(async () => {
      const fresh = [...new Set(lines)].filter((line) => !known.has(line));
      const wanted = [query.value, ...fresh];
      const vectors = await embed(module, tokenizer, wanted, limits, signal);
      fresh.forEach((line, index) => {
        known.set(line, vectors[index + 1] as Float32Array);
      });
      const asked = vectors[0] as Float32Array;
      return lines.map((line) => cosine(asked, known.get(line) ?? []));
    });
    bars(
      byId('found'),
      largest(scores, 10).map(({ index, value }) => ({
        text: lines[index] ?? '',
        part: value,
        shown: value.toFixed(2),
        value,
      })),
    );
    byId('result').hidden = false;
  });
});
