/** Results on the page. */

import { byId, bytes, duration, make } from '../shared/dom';
import { type ChartWords, short } from './chart';
import type { BenchResults, Column, Means, Row } from './results';

const NONE = '–';

function time(column: Column | undefined): string {
  if (!column) return NONE;
  return `${duration(column.ms)} ±${(column.spread * 100).toFixed(0)}%`;
}

function heap(column: Column | undefined): string {
  return column?.heap === undefined ? NONE : bytes(Math.max(0, column.heap));
}

/** The table, its notes, and one sentence that says it all. */
export function showRows(
  rows: readonly Row[],
  apart: ReadonlyMap<string, number | null>,
  means: Means | undefined,
): void {
  byId('rows').replaceChildren(
    ...rows.map((row) => {
      const { ours, ort, ratio } = row;
      const part = apart.get(row.name);
      const cells = [
        time(ours),
        time(ort),
        ratio === undefined ? NONE : `${short(ratio)}x`,
        ours ? duration(ours.firstMs) : NONE,
        ort ? duration(ort.firstMs) : NONE,
        heap(ours),
        heap(ort),
        typeof part === 'number' ? part.toExponential(0) : NONE,
      ];
      return make(
        'tr',
        { 'data-case': row.name },
        make('th', { scope: 'row' }, row.title),
        ...cells.map((text) => make('td', { class: 'number' }, text)),
      );
    }),
  );
  byId('notes').replaceChildren(
    ...rows.flatMap(({ title, notes }) =>
      notes.map((note) => make('li', {}, `${title}: ${note}`)),
    ),
  );
  byId('summary').textContent = means
    ? `By the geometric mean of ${means.count} ${means.count === 1 ? 'model' : 'models'}, a run takes onnxruntime-web ` +
      `${short(means.ratio)} times as long as ours, and the first result ` +
      `${short(means.firstRatio)} times as long.`
    : 'No model was run by both yet.';
}

export function chartWords({ adapter, date, runtimes }: BenchResults): ChartWords {
  const name = [adapter.vendor, adapter.architecture, adapter.description]
    .filter((part) => part)
    .join(' ');
  return {
    title: 'Time of onnxruntime-web relative to executorch-webgpu',
    where: `${name || 'a GPU'}, ${date.slice(0, 10)}, ${runtimes.ort.version} and ${runtimes.ours.version}`,
  };
}

/** Gives a file to the visitor. */
export function saveAs(name: string, type: string, content: string): void {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = make('a', { href: address, download: name });
  link.click();
  // The browser has taken the content when the click is handled.
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
