/** What the pages with a language model share: options, and text as it comes. */

import type { Message, TextGenerator } from '../../src/text';
import { byId, duration } from './dom';
import type { Page } from './page';

/** The options of the page. */
export function sampling(): { temperature: number; maxTokens: number } {
  return {
    temperature: Number(byId('temperature', HTMLInputElement).value),
    maxTokens: Number(byId('length', HTMLInputElement).value),
  };
}

/** Shows the temperature beside its slider. */
export function showTemperature(): void {
  const slider = byId('temperature', HTMLInputElement);
  const shown = byId('temperature-shown', HTMLOutputElement);
  slider.addEventListener('input', () => {
    shown.textContent = slider.value === '0' ? '0, the likeliest' : slider.value;
  });
}

/**
 * Writes an answer into an element as it comes; gives its text.
 * @param place gets the tokens as `data-tokens` at the end
 */
export async function write(
  page: Page,
  generator: TextGenerator,
  prompt: string | readonly Message[],
  place: HTMLElement,
  signal: AbortSignal,
): Promise<string> {
  let text = '';
  place.classList.add('busy');
  page.say('Reading …');
  try {
    for await (const piece of generator.generate(prompt, { ...sampling(), signal })) {
      text += piece;
      place.append(piece);
      const { tokens, ms } = generator.stats;
      page.say(`${tokens} tokens`);
      if (tokens > 1 && ms > 0) {
        const each = duration(ms / (tokens - 1));
        byId('time').textContent = `${each} per token`;
      }
    }
  } finally {
    place.classList.remove('busy');
    place.dataset.tokens = JSON.stringify(generator.tokens);
    place.dataset.end = generator.stats.end;
  }
  return text;
}
