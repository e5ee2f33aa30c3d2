/** Hears notes. */

import { detectPitch, noteOf, type Pitch } from '../../src/audio';
import { type CardSize, portOf } from '../../src/model_card';
import { byId, make } from '../shared/dom';
import { startPage } from '../shared/page';
import { drawPitch, notesOf, SURE } from '../shared/pitch_plot';
import { SoundInput } from '../shared/sound_input';

interface SoundSpec {
  rate: number;
  frame: number;
  hop: number;
  normalize: boolean;
}

await startPage('pitch', (page) => {
  const input = new SoundInput(page);
  const port = portOf(page.card, 'inputs');
  const spec = port.sound as SoundSpec;
  const most = (port.dims[0] as CardSize).max;
  const step = spec.hop / spec.rate;
  const load = page.module();
  const plot = byId('plot', HTMLCanvasElement);
  let draw: (() => void) | undefined;
  page.onRun(async (signal) => {
    const samples = await input.samples();
    const module = await load(signal);
    const found = await page.timed(() =>
      detectPitch(module, samples, { ...spec, most }, (done, total) => {
        signal.throwIfAborted();
        page.progress(done / total);
      }),
    );
    const notes = notesOf(found);
    const text = notes.length > 0 ? notes.join('   ') : '(no note was heard)';
    byId('notes').textContent = text;
    byId('frames').replaceChildren(
      ...found.map((each, index) => row(each, index * step)),
    );
    byId('result').hidden = false;
    plot.setAttribute('aria-label', `The pitch over time: ${text}`);
    draw = () => drawPitch(plot, found, step);
    draw();
  });
  // The picture follows the page's size and colours.
  new ResizeObserver(() => draw?.()).observe(plot);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => draw?.());
});

function row({ hertz, confidence }: Pitch, seconds: number): HTMLElement {
  const number = (text: string, value: number) =>
    make('td', { class: 'number', 'data-value': String(value) }, text);
  const name = confidence >= SURE ? noteOf(hertz).name : '–';
  return make(
    'tr',
    {},
    number(seconds.toFixed(2), seconds),
    number(hertz.toFixed(1), hertz),
    make('td', {}, name),
    number(confidence.toFixed(2), confidence),
  );
}
