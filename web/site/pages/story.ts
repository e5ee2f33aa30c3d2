/** Goes on with a story. */

import { TextGenerator } from '../../src/text';
import { byId, make } from '../shared/dom';
import { startPage } from '../shared/page';
import { showTexts } from '../shared/samples';
import { showTemperature, write } from '../shared/writing';

await startPage('story', async (page) => {
  const prompt = byId('prompt', HTMLTextAreaElement);
  await showTexts(byId('prompts'), new URL('prompts.txt', page.folder), (text) => {
    prompt.value = text;
  });
  showTemperature();
  const load = page.once((options) => TextGenerator.load(page.folder, options));
  page.onRun(async (signal) => {
    const generator = await load(signal);
    const begin = prompt.value.trim();
    const story = make('span');
    byId('text').replaceChildren(make('span', { class: 'given' }, begin), story);
    byId('result').hidden = false;
    await write(page, generator, begin, story, signal);
  });
});
