/** Runs any program: that of `?model=`, or a file of the visitor's own. */

import { WebGPUError } from '../../src/errors';
import { adapterName } from '../../src/gpu/device';
import type { Input } from '../../src/method';
import { Module } from '../../src/module';
import type { Profile } from '../../src/profile_table';
import { byId, bytes, duration, make } from '../shared/dom';
import { acceptDrops } from '../shared/drop';
import { findAdapter, showNoGpu } from '../shared/missing';
import { type InputReader, inputFields } from '../shared/program_inputs';
import { outputView } from '../shared/program_outputs';
import { Runner, showWarning } from '../shared/runner';

const runner = new Runner();
const method = byId('method', HTMLSelectElement);
const file = byId('file', HTMLInputElement);
const measure = byId('measure', HTMLButtonElement);
let module: Module | undefined;
let readers: InputReader[] = [];

/** Reads the program; its weights come when it is run. */
async function open(from: string | Blob, name: string): Promise<void> {
  runner.say(`Reading ${name} …`);
  byId('form').hidden = true;
  const onProgress = runner.watchLoad();
  const opened = await Module.open(from, { onProgress, onWarning: showWarning });
  module?.dispose();
  module = opened;
  const { requirements, methods } = opened;
  method.replaceChildren(...methods.map((each) => make('option', {}, each)));
  showInputs();
  byId('name').textContent = name;
  const { fileBytes, gpuBytes, features } = requirements;
  const size = fileBytes === undefined ? 'size unknown' : bytes(fileBytes);
  byId('size').textContent = `${size}, ${bytes(gpuBytes)} on the GPU`;
  byId('about').textContent =
    features.length > 0 ? `It needs ${features.join(' and ')}.` : '';
  byId('form').hidden = false;
  byId('result').hidden = true;
  byId('profile').hidden = true;
  runner.say(`${name} is ready to run.`);
}

function showInputs(): void {
  const { inputs } = current().meta(method.value);
  const fields = inputs.map(inputFields);
  readers = fields.map(([, read]) => read);
  const none = make('p', { class: 'hint' }, 'This method takes no inputs.');
  const elements = fields.map(([element]) => element);
  byId('inputs').replaceChildren(...(elements.length > 0 ? elements : [none]));
}

function current(): Module {
  if (!module) {
    throw new WebGPUError('InvalidState', 'a program must be chosen, got none');
  }
  return module;
}

async function readInputs(): Promise<Input[]> {
  return Promise.all(readers.map((read) => read()));
}

function showProfile({ rows, gpuMs, isTimedByGpu }: Profile): void {
  const clock = isTimedByGpu
    ? 'by the GPU’s clock'
    : 'one by one, by the clock of the page';
  const head = ['Op', 'Kernel', 'Runs', 'Time', 'Part'];
  const cells = (texts: string[], tag: 'td' | 'th') =>
    texts.map((text, at) => make(tag, at > 1 ? { class: 'number' } : {}, text));
  const body = rows.map(({ op, kernel, count, ms }) => {
    const part = `${((100 * ms) / (gpuMs || 1)).toFixed(1)} %`;
    return make(
      'tr',
      {},
      ...cells([op, kernel, String(count), duration(ms), part], 'td'),
    );
  });
  byId('kernels').replaceChildren(
    make('p', { class: 'hint' }, `${duration(gpuMs)} in all kernels, ${clock}.`),
    make(
      'div',
      { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Kernels' },
      make(
        'table',
        {},
        make('thead', {}, make('tr', {}, ...cells(head, 'th'))),
        make('tbody', {}, ...body),
      ),
    ),
  );
}

runner.onRun(async (signal) => {
  const inputs = await readInputs();
  const loaded = current();
  const started = performance.now();
  await loaded.load();
  byId('load').textContent = duration(loaded.stats().loadMs);
  signal.throwIfAborted();
  if (performance.now() - started > 1) runner.say('Loaded.');
  const outputs = await runner.timed(async () => {
    const results = await loaded.execute(method.value, inputs, { signal });
    return Promise.all(results.map(outputView));
  });
  byId('result').replaceChildren(...outputs);
  byId('result').hidden = false;
  byId('profile').hidden = false;
});

measure.addEventListener('click', async () => {
  measure.disabled = true;
  await runner.attempt(async () => {
    showProfile(await current().profile(method.value, await readInputs()));
  });
  measure.disabled = false;
});
method.addEventListener('change', () => runner.attempt(showInputs));
file.addEventListener('change', () => {
  const [chosen] = file.files ?? [];
  if (chosen) void runner.attempt(() => open(chosen, chosen.name));
  file.value = '';
});
acceptDrops(
  byId('drop'),
  (each) => /\.b?pte$/.test(each.name),
  (each) => void runner.attempt(() => open(each, each.name)),
);

const adapter = await findAdapter();
byId('adapter').textContent = adapter ? adapterName(adapter.info) : 'none';
const given = new URLSearchParams(location.search).get('model');
if (!adapter) {
  showNoGpu(byId('missing'));
} else if (given) {
  const url = new URL(given, location.href);
  const name = decodeURIComponent(url.pathname.split('/').pop() ?? given);
  await runner.attempt(() => open(url.href, name));
}
