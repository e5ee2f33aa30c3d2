/** A conversation. */

import { type Message, TextGenerator } from '../../src/text';
import { byId, make } from '../shared/dom';
import { startPage } from '../shared/page';
import { showTexts } from '../shared/samples';
import { showTemperature, write } from '../shared/writing';

await startPage('chat', async (page) => {
  const prompt = byId('prompt', HTMLTextAreaElement);
  const talk = byId('talk');
  let messages: Message[] = [];
  await showTexts(byId('prompts'), new URL('prompts.txt', page.folder), (text) => {
    prompt.value = text;
    prompt.focus();
  });
  showTemperature();
  const load = page.once((options) => TextGenerator.load(page.folder, options));
  const again = byId('again', HTMLButtonElement);
  page.onRun(async (signal) => {
    const question = prompt.value.trim();
    const generator = await load(signal);
    const asked = make('div', { class: 'turn user' }, question);
    const answer = make('div', { class: 'turn assistant' });
    talk.append(asked, answer);
    prompt.value = '';
    again.disabled = true;
    const turns: Message[] = [...messages, { role: 'user', content: question }];
    try {
      const text = await write(page, generator, turns, answer, signal);
      messages = [...turns, { role: 'assistant', content: text }];
    } catch (error) {
      // What failed is not part of the conversation, and can be sent again.
      asked.remove();
      answer.remove();
      prompt.value = question;
      throw error;
    } finally {
      again.disabled = false;
    }
  });
  prompt.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      page.form.requestSubmit();
    }
  });
  again.addEventListener('click', () => {
    messages = [];
    talk.replaceChildren();
    prompt.focus();
  });
});
