/** The samples of a model, as a group of radio buttons. */

import type { ModelCard } from '../../src/model_card';
import { fetchFile } from '../../src/model_card';
import { make } from './dom';

/** Shows the samples; `choose` is told which, and the first is chosen at once. */
export function showSamples(
  place: HTMLElement,
  folder: URL,
  samples: ModelCard['samples'],
  choose: (file: Blob, name: string) => void | Promise<void>,
  onError: (error: unknown) => void,
): { clear: () => void } {
  // What was chosen last counts, not what came last.
  let wanted: string | undefined;
  const pick = async (file: string) => {
    wanted = file;
    try {
      const blob = await (await fetchFile(new URL(file, folder))).blob();
      if (wanted === file) await choose(blob, file);
    } catch (error) {
      onError(error);
    }
  };
  place.setAttribute('role', 'radiogroup');
  place.setAttribute('aria-label', 'Samples');
  const radios = samples.map((sample) => {
    const radio = make('input', { type: 'radio', name: 'sample', value: sample.file });
    radio.addEventListener('change', () => pick(sample.file));
    const label = make('label', {}, radio);
    if (sample.file.endsWith('.png')) {
      label.append(make('img', { src: new URL(sample.file, folder).href, alt: '' }));
    }
    const name = sample.file.replace(/\.\w+$/, '');
    label.append(name.charAt(0).toUpperCase() + name.slice(1));
    label.title = sample.package ? `${sample.name} (${sample.licence})` : sample.name;
    place.append(label);
    return radio;
  });
  const [first] = radios;
  if (first) {
    first.checked = true;
    void pick(first.value);
  }
  return {
    clear: () => {
      wanted = undefined;
      for (const radio of radios) radio.checked = false;
    },
  };
}

/** Buttons that fill a field with one of the model's own texts. */
export async function showTexts(
  place: HTMLElement,
  url: URL,
  use: (text: string) => void,
): Promise<void> {
  const lines = (await (await fetchFile(url)).text()).split('\n').filter(Boolean);
  offer(place, lines, use);
  if (lines[0]) use(lines[0]);
}

/** Buttons with texts. */
export function offer(
  place: HTMLElement,
  texts: readonly string[],
  use: (text: string) => void,
): void {
  place.replaceChildren(
    ...texts.map((text) => {
      const button = make('button', { type: 'button' }, text);
      button.addEventListener('click', () => use(text));
      return button;
    }),
  );
}
