/** Writes down what is said. */

import { readTranscriberConfig, Transcriber } from '../../src/audio';
import { Module } from '../../src/module';
import { loadTokenizer } from '../../src/text';
import { byId, duration } from '../shared/dom';
import { startPage } from '../shared/page';
import { SoundInput } from '../shared/sound_input';

await startPage('transcribe', (page) => {
  const { card, folder } = page;
  const input = new SoundInput(page);
  const config = readTranscriberConfig(card);
  const load = page.once(async (options) => {
    const file = new URL(card.tokenizer ?? 'tokenizer.json', folder);
    const tokenizer = await loadTokenizer(file, options.signal);
    const url = new URL(card.program.file, folder).href;
    const { integrity } = card.program;
    const module = await Module.load(url, { integrity, ...options });
    const decode = (tokens: number[]) => tokenizer.decode(tokens);
    return new Transcriber(module, decode, config);
  });
  page.onRun(async (signal) => {
    const samples = await input.samples();
    const transcriber = await load(signal);
    const place = byId('text');
    place.textContent = '';
    place.classList.add('busy');
    byId('result').hidden = false;
    try {
      let text = '';
      const started = performance.now();
      await page.timed(async () => {
        for await (const piece of transcriber.transcribe(samples, signal)) {
          text += piece;
          place.textContent = text.trim();
        }
      });
      const took = performance.now() - started;
      const seconds = samples.length / config.rate;
      byId('time').textContent =
        `${duration(took)} for ${seconds.toFixed(1)} s of sound, ${transcriber.tokens.length} tokens`;
      if (!text.trim() && !signal.aborted) place.textContent = '(nothing was said)';
    } finally {
      place.classList.remove('busy');
    }
  });
});
