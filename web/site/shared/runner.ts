/** A form with a button: what it does can be stopped, may fail, and says how it goes. */

import type { LoadOptions } from '../../src/module';
import { byId, duration, make } from './dom';
import { watch } from './progress';

export class Runner {
  readonly form = byId('form', HTMLFormElement);
  private readonly run = byId('run', HTMLButtonElement);
  private readonly stop = byId('stop', HTMLButtonElement);
  private running: AbortController | undefined;

  constructor() {
    this.stop.addEventListener('click', () => this.running?.abort());
  }

  /** What the button does, or Enter. It can be stopped, and then started again. */
  onRun(work: (signal: AbortSignal) => Promise<void>): void {
    this.form.addEventListener('submit', async (event) => {
      event.preventDefault();
      if (this.running) return;
      this.running = new AbortController();
      this.setBusy(true);
      const { signal } = this.running;
      try {
        await work(signal);
        this.say(signal.aborted ? 'Stopped.' : 'Done.');
      } catch (error) {
        if (signal.aborted) this.say('Stopped.');
        else this.fail(error);
      } finally {
        this.running = undefined;
        this.setBusy(false);
      }
    });
  }

  /** Something short that may fail, such as reading a file. */
  async attempt(work: () => Promise<void> | void): Promise<void> {
    this.clear();
    try {
      await work();
    } catch (error) {
      this.fail(error);
    }
  }

  /** What makes `value` the first time and whenever it failed before. */
  once<T>(
    load: (options: LoadOptions) => Promise<T>,
  ): (signal: AbortSignal) => Promise<T> {
    let loaded: T | undefined;
    return async (signal) => {
      if (loaded === undefined) {
        const started = performance.now();
        loaded = await load({ signal, onProgress: watch(), onWarning: showWarning });
        byId('load').textContent = duration(performance.now() - started);
      }
      return loaded;
    };
  }

  /** For `onProgress` of a module that is loaded without `once`. */
  watchLoad(): NonNullable<LoadOptions['onProgress']> {
    return watch();
  }

  /** Runs the model, and says how long it took. */
  async timed<T>(work: () => Promise<T>): Promise<T> {
    this.say('Running …');
    this.progress(undefined);
    const started = performance.now();
    const result = await work();
    byId('time').textContent = duration(performance.now() - started);
    return result;
  }

  /** Says what is going on. */
  say(text: string): void {
    byId('status').textContent = text;
  }

  /** How much is done, 0 to 1, or undefined where that is not known. */
  progress(part: number | undefined): void {
    const bar = byId('progress', HTMLProgressElement);
    bar.hidden = false;
    if (part === undefined) bar.removeAttribute('value');
    else bar.value = part;
  }

  /** Shows what happened; the page stays as it was. */
  fail(error: unknown): void {
    this.say('');
    showError(error);
  }

  private clear(): void {
    byId('error').hidden = true;
  }

  private setBusy(busy: boolean): void {
    this.run.disabled = busy;
    this.run.setAttribute('aria-busy', String(busy));
    this.stop.hidden = !busy;
    byId('progress', HTMLProgressElement).hidden = !busy;
    if (busy) {
      this.clear();
      this.progress(undefined);
    }
  }
}

/** Shows what happened, on any page. */
export function showError(error: unknown): void {
  const message = error instanceof Error ? error.message : String(error);
  const place = byId('error');
  place.replaceChildren(
    make('h2', {}, 'That did not work'),
    make('p', {}, message),
    make(
      'p',
      { class: 'hint' },
      'The page is as it was: change something, or try again.',
    ),
  );
  place.hidden = false;
}

/** Says what went wrong and does not matter now, such as a model that is not kept. */
export function showWarning(message: string): void {
  const place = byId('warning');
  place.textContent = message;
  place.hidden = false;
}
