/** What all pages share: the model's card, progress, times, errors and the GPU's name. */

import { WebGPUError } from '../../src/errors';
import { adapterName } from '../../src/gpu/device';
import { fetchCard, folderUrl, type ModelCard } from '../../src/model_card';
import { Module } from '../../src/module';
import { byId, bytes, make } from './dom';
import { findAdapter, showNoGpu, showNoModel } from './missing';
import { keepForOffline } from './offline';
import { Runner, showError } from './runner';

/** What a page is made of; `name` is that of the model's folder. */
export async function startPage(
  name: string,
  build: (page: Page) => void | Promise<void>,
): Promise<void> {
  void keepForOffline();
  const adapter = await findAdapter();
  byId('adapter').textContent = adapter ? adapterName(adapter.info) : 'none';
  const run = byId('run', HTMLButtonElement);
  run.disabled = true;
  if (!adapter) {
    showNoGpu(byId('missing'));
    byId('size').textContent = '–';
    byId('load').textContent = '–';
    return;
  }
  const folder = folderUrl(`models/${name}`);
  let card: ModelCard;
  try {
    card = await fetchCard(folder);
  } catch (error) {
    if (!(error instanceof WebGPUError) || error.code !== 'NotFound') {
      showError(error);
      return;
    }
    showNoModel(byId('missing'), name);
    return;
  }
  const page = new Page(folder, card);
  showCard(card);
  try {
    await build(page);
    run.disabled = false;
  } catch (error) {
    page.fail(error);
  }
}

/** One page with one model. */
export class Page extends Runner {
  constructor(
    readonly folder: URL,
    readonly card: ModelCard,
  ) {
    super();
  }

  /** The program of the card. */
  module(): (signal: AbortSignal) => Promise<Module> {
    const { file, integrity } = this.card.program;
    const url = new URL(file, this.folder).href;
    return this.once((options) => Module.load(url, { integrity, ...options }));
  }
}

function showCard(card: ModelCard): void {
  const others = card.files.filter(({ file }) => file === card.tokenizer);
  const total = others.reduce((sum, file) => sum + file.bytes, card.program.bytes);
  byId('size').textContent = `${bytes(total)}, fetched once`;
  const { name, licence } = card.weights;
  const page = `source/${card.source.split('/').pop()?.replace('.py', '.html')}`;
  byId('about').replaceChildren(
    `${card.summary} Weights: ${name} (${licence}). Exported by `,
    make('a', { href: page }, card.source),
    '.',
  );
}
