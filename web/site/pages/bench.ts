/** The bench page: both runtimes on the visitor's own GPU. */

import { adapterName } from '../../src/gpu/device';
import { CASES } from '../bench/cases';
import { chartSvg } from '../bench/chart';
import { adapterFacts, browserFacts, sizesFor } from '../bench/environment';
import { fetchRuntimes, openEngines } from '../bench/frames';
import { measureCase } from '../bench/measure';
import {
  type BenchResults,
  type CaseResult,
  FORMAT,
  gzipBytes,
  meansOf,
  rowOf,
  TOLERANCE,
} from '../bench/results';
import { chartWords, saveAs, showRows } from '../bench/show';
import { byId, bytes, make } from '../shared/dom';
import { findAdapter, showNoGpu } from '../shared/missing';
import { keepForOffline } from '../shared/offline';
import { Runner, showError } from '../shared/runner';

declare global {
  interface Window {
    /** Of the last measurement, for whoever drives the page. */
    benchResults?: BenchResults;
  }
}

async function start(): Promise<void> {
  void keepForOffline();
  const run = byId('run', HTMLButtonElement);
  run.disabled = true;
  const adapter = await findAdapter();
  byId('adapter').textContent = adapter ? adapterName(adapter.info) : 'none';
  if (!adapter) {
    showNoGpu(byId('missing'));
    return;
  }
  const runtimes = await fetchRuntimes();
  for (const name of ['ours', 'ort'] as const) {
    const { version } = runtimes[name];
    const size = bytes(gzipBytes(runtimes[name]));
    byId(`size-${name}`).textContent = `${version}, ${size} compressed`;
  }
  const page = new Runner();
  showChoices(adapter);
  page.onRun(async (signal) => {
    const results: BenchResults = {
      kind: 'executorch-webgpu-bench',
      format: FORMAT,
      date: new Date().toISOString(),
      browser: browserFacts(),
      adapter: adapterFacts(adapter),
      runtimes,
      settings: { ...choices(), tolerance: TOLERANCE },
      cases: [],
    };
    delete window.benchResults;
    const chosen = CASES.filter(({ name }) => isChosen(name));
    for (const [index, bench] of chosen.entries()) {
      page.progress(index / chosen.length);
      page.say(`${bench.title}: fetching`);
      const { rounds, sizes } = results.settings;
      const inputs = bench.inputs[sizes];
      const { engines, close } = await openEngines(bench, inputs, runtimes, signal);
      try {
        const onStep = (text: string): void => page.say(text);
        const options = { rounds, sizes, signal, onStep };
        results.cases.push(await measureCase(bench, engines, options));
      } finally {
        close();
      }
      show(results);
    }
    window.benchResults = results;
  });
  byId('save-json').addEventListener('click', () => {
    const text = `${JSON.stringify(window.benchResults, undefined, 1)}\n`;
    saveAs('executorch-webgpu-bench.json', 'application/json', text);
  });
  byId('save-chart').addEventListener('click', () => {
    const svg = byId('chart').innerHTML;
    saveAs('executorch-webgpu-bench.svg', 'image/svg+xml', svg);
  });
  run.disabled = false;
}

/** The models, of which an address such as ?models=pitch,search chooses some. */
function showChoices(adapter: GPUAdapter): void {
  const asked = new URL(location.href).searchParams;
  const wanted = asked.get('models')?.split(',');
  byId('models').replaceChildren(
    ...CASES.map(({ name, title }) => {
      const box = make('input', { type: 'checkbox', id: `case-${name}` });
      box.checked = wanted ? wanted.includes(name) : true;
      return make('label', {}, box, title);
    }),
  );
  byId('rounds', HTMLInputElement).value = asked.get('rounds') ?? '10';
  const sizes = asked.get('sizes') ?? sizesFor(adapter.info);
  byId('sizes', HTMLSelectElement).value = sizes;
}

function isChosen(name: string): boolean {
  return byId(`case-${name}`, HTMLInputElement).checked;
}

function choices(): Pick<BenchResults['settings'], 'rounds' | 'sizes'> {
  const { value } = byId('sizes', HTMLSelectElement);
  return {
    rounds: byId('rounds', HTMLInputElement).valueAsNumber,
    sizes: value === 'small' ? 'small' : 'full',
  };
}

function show(results: BenchResults): void {
  const rows = results.cases.map(rowOf);
  const apart = new Map(
    results.cases.map(({ name, difference }: CaseResult) => [name, difference]),
  );
  showRows(rows, apart, meansOf(rows));
  byId('chart').innerHTML = chartSvg(rows, chartWords(results));
  byId('result').hidden = false;
}

start().catch(showError);
