/** Makes a worker in which programs run, so that the page has its thread for itself. */

import { WebGPUError } from '../errors';
import type { LoadOptions, ModuleInput } from '../module';
import { Module } from '../module';
import { Connection, RemoteModule } from './client';
import { serve } from './serve';

export { RemoteModule } from './client';

export interface WorkerOptions {
  /** Where `worker.js` of this package is; beside the package's own file unless said. */
  url?: string | URL | undefined;
}

/** A worker and the modules that it has. */
export class ModuleWorker {
  readonly #worker: Worker;
  readonly #connection: Connection;

  /** @internal */
  constructor(worker: Worker, connection: Connection) {
    this.#worker = worker;
    this.#connection = connection;
  }

  /** As `Module.load`, in the worker. Bytes are copied to it, a stream is moved. */
  async load(from: ModuleInput, options: LoadOptions = {}): Promise<RemoteModule> {
    const module = await this.open(from, options);
    try {
      await module.load();
    } catch (error) {
      module.dispose();
      throw error;
    }
    return module;
  }

  /** As `Module.open`, in the worker. */
  open(from: ModuleInput, options: LoadOptions = {}): Promise<RemoteModule> {
    return RemoteModule.open(this.#connection, from, options);
  }

  /** Ends the worker, and with it all of its modules and tensors. */
  dispose(): void {
    this.#worker.terminate();
    this.#connection.end('disposed');
  }
}

/**
 * Starts a worker; resolves when it listens.
 *
 * ```ts
 * const worker = await createWorker();
 * const module = await worker.load('model.pte');
 * const [y] = await module.forward([x]);
 * ```
 */
export async function createWorker(options: WorkerOptions = {}): Promise<ModuleWorker> {
  const worker = start(options.url);
  const connection = new Connection(worker);
  worker.addEventListener('error', (event) => {
    event.preventDefault();
    const { message } = event as ErrorEvent;
    worker.terminate();
    connection.end(
      message
        ? `an error: ${message}`
        : `no script at ${options.url ?? 'worker.js beside the package'}; createWorker ` +
            'takes its address as url',
    );
  });
  worker.addEventListener('messageerror', () => {
    worker.terminate();
    connection.end('a message that cannot be read here');
  });
  const lock = await connection.ready;
  if (lock !== undefined) {
    // The worker holds it as long as it lives: who gets it knows that it does no more.
    void navigator.locks.request(lock, () => connection.end('one that has ended'));
  }
  return new ModuleWorker(worker, connection);
}

function start(url: string | URL | undefined): Worker {
  const name = 'executorch-webgpu';
  if (typeof Worker === 'undefined') {
    throw new WebGPUError('NotSupported', 'createWorker: must have workers, got none');
  }
  if (url === undefined) {
    const own = new URL('./worker.js', import.meta.url);
    if (own.origin === globalThis.location?.origin) {
      // Written out, so that bundlers see which file is meant.
      return new Worker(new URL('./worker.js', import.meta.url), {
        type: 'module',
        name,
      });
    }
    return elsewhere(own, name);
  }
  const given = new URL(url, globalThis.document?.baseURI ?? globalThis.location?.href);
  return given.origin === globalThis.location?.origin
    ? new Worker(given, { type: 'module', name })
    : elsewhere(given, name);
}

// Browsers start no worker from another origin, as of a CDN, but one that imports it.
function elsewhere(url: URL, name: string): Worker {
  const text = `import ${JSON.stringify(url.href)};`;
  const script = URL.createObjectURL(new Blob([text], { type: 'text/javascript' }));
  const worker = new Worker(script, { type: 'module', name });
  // The script was read when the worker says something, or fails.
  for (const type of ['message', 'error']) {
    worker.addEventListener(type, () => URL.revokeObjectURL(script), { once: true });
  }
  return worker;
}

/** What `worker.js` does: listens to the page that started it. */
export async function serveWorker(): Promise<void> {
  const lock = navigator.locks && `executorch-webgpu ${crypto.randomUUID()}`;
  if (lock !== undefined) {
    // Until the worker ends.
    await new Promise<void>((resolve) => {
      void navigator.locks.request(lock, () => {
        resolve();
        return new Promise(() => undefined);
      });
    });
  }
  serve(
    globalThis as unknown as Worker,
    (from, options) => Module.open(from, options),
    lock,
  );
}
