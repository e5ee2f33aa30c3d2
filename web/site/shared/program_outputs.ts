/** What a program gave: numbers about it, its first values, and a picture of it. */

import {
  fromNumbers,
  maskPicture,
  normalizeMask,
  type Pixels,
  show,
} from '../../src/image';
import type { Output } from '../../src/method';
import { numbersOf } from '../../src/numbers';
import { Tensor } from '../../src/tensor';
import { make } from './dom';

const SHOWN = 16;
const LEAST_SIDE = 16;

/** One output. */
export async function outputView(output: Output, index: number): Promise<HTMLElement> {
  if (!(output instanceof Tensor)) {
    return make('div', {}, make('h2', {}, `Output ${index}: ${output}`));
  }
  const values = Array.from(numbersOf(output.type, await output.data()));
  const { type, dims } = output;
  const view = make(
    'div',
    {},
    make('h2', {}, `Output ${index}: ${type} [${dims.join(', ')}]`),
  );
  const facts = statistics(values);
  const cells = Object.entries(facts).map(([name, value]) =>
    make(
      'div',
      {},
      make('dt', {}, name),
      make('dd', { 'data-value': String(value) }, short(value)),
    ),
  );
  const first = values.slice(0, SHOWN).map(short).join(', ');
  const more = values.length > SHOWN ? ', …' : '';
  view.append(
    make('div', { class: 'facts' }, make('dl', {}, ...cells)),
    make(
      'p',
      {},
      make(
        'code',
        { 'data-values': JSON.stringify(values.slice(0, SHOWN)) },
        first + more,
      ),
    ),
  );
  const picture = asPicture(values, dims, facts);
  if (picture) {
    const canvas = make('canvas', {
      role: 'img',
      'aria-label': `Output ${index} as a picture`,
    });
    show(canvas, picture);
    view.append(make('figure', {}, canvas));
  }
  return view;
}

/** Of all numbers; what is no number is counted, and left out. */
export function statistics(values: readonly number[]): Record<string, number> {
  const finite = values.filter(Number.isFinite);
  const count = Math.max(1, finite.length);
  const mean = finite.reduce((sum, value) => sum + value, 0) / count;
  const squares = finite.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  let [least, most, place] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0];
  values.forEach((value, index) => {
    if (value < least) least = value;
    if (value > most) [most, place] = [value, index];
  });
  const facts: Record<string, number> = {
    least,
    most,
    'most at': place,
    mean,
    deviation: Math.sqrt(squares / count),
  };
  if (finite.length < values.length)
    facts['not finite'] = values.length - finite.length;
  return facts;
}

/** [.., 3 or 1, height, width] or [height, width], as a picture if it may be one. */
export function asPicture(
  values: readonly number[],
  dims: readonly number[],
  facts: Record<string, number>,
): Pixels | undefined {
  const [channels = 1, height = 0, width = 0] =
    dims.length === 2 ? [1, ...dims] : dims.slice(-3);
  const others = dims.slice(0, -3).every((size) => size === 1);
  if (!others || height < LEAST_SIDE || width < LEAST_SIDE) return undefined;
  if (channels !== 1 && channels !== 3) return undefined;
  // Numbers that go a little beyond 0 and 1 are a picture's own.
  const isUnit =
    (facts.least ?? 0) > -0.5 && (facts.most ?? 0) < 1.5 && (facts.most ?? 0) > 0.1;
  const shown = isUnit ? values : normalizeMask(values);
  return channels === 3
    ? fromNumbers(shown, [3, height, width])
    : maskPicture(shown, width, height);
}

function short(value: number): string {
  return Number.isInteger(value) ? String(value) : value.toPrecision(5);
}
