/** The worker's side: modules by their numbers, and what a page asks of them. */

import { WebGPUError } from '../errors';
import type { Input, Output } from '../method';
import type { LoadOptions, Module, ModuleInput } from '../module';
import { Tensor, type TensorData } from '../tensor';
import {
  type CallName,
  type Calls,
  type FromWorker,
  fromWire,
  type ModuleFacts,
  type Port,
  type ToWorker,
  toWire,
  type WireTensor,
  type WireValue,
} from './messages';

/** What is used of `Module`, so that tests can have another. */
export type ServedModule = Pick<
  Module,
  | 'dispose'
  | 'execute'
  | 'hasState'
  | 'isBundle'
  | 'load'
  | 'meta'
  | 'methods'
  | 'profile'
  | 'requirements'
  | 'resetState'
  | 'stats'
  | 'verify'
>;

export type OpenModule = (
  from: ModuleInput,
  options: LoadOptions,
) => Promise<ServedModule>;

type Handlers = {
  [Name in CallName]: (asks: Calls[Name]['asks']) => Promise<Calls[Name]['gets']>;
};

interface Held {
  tensor: Tensor;
  module: number;
}

/** Serves a page until the worker ends. */
export function serve(port: Port, open: OpenModule, lock?: string): void {
  const server = new Server(port, open);
  port.addEventListener('message', ({ data }) => server.hear(data as ToWorker));
  server.tell({ kind: 'ready', lock });
}

class Server {
  readonly #port: Port;
  readonly #open: OpenModule;
  readonly #modules = new Map<number, ServedModule>();
  readonly #disposed = new Set<number>();
  readonly #signals = new Map<number, AbortController>();
  readonly #tensors = new Map<number, Held>();
  #nextTensor = 1;
  readonly #handlers: Handlers = {
    open: (asks) => this.#openModule(asks),
    load: async ({ module }) => {
      await this.#module(module).load();
      return this.#facts(module);
    },
    execute: ({ module, name, inputs, signal }) =>
      this.#withInputs(inputs, async (given) => {
        const options = { signal: this.#signal(signal) };
        const outputs = await this.#module(module).execute(name, given, options);
        return outputs.map((each) => this.#output(each, module));
      }),
    profile: ({ module, name, inputs }) =>
      this.#withInputs(inputs, async (given) => {
        const profile = await this.#module(module).profile(name, given);
        const outputs = profile.outputs.map((each) => this.#output(each, module));
        return { ...profile, outputs };
      }),
    resetState: async ({ module }) => {
      await this.#module(module).resetState();
      return undefined;
    },
    stats: async ({ module }) => this.#module(module).stats(),
    verify: async ({ module, options, signal }) =>
      this.#module(module).verify({ ...options, signal: this.#signal(signal) }),
    read: async ({ tensor }) => {
      const { type, size, place } = this.#held(tensor).tensor;
      if (place === undefined) {
        throw new WebGPUError('InvalidState', 'Tensor: must be alive, got disposed');
      }
      const data = await place.read(type, size);
      // What is given away is gone here.
      return data === place.gpu?.prefetched ? data.slice() : data;
    },
  };

  constructor(port: Port, open: OpenModule) {
    this.#port = port;
    this.#open = open;
  }

  tell(message: FromWorker, transfer: Transferable[] = []): void {
    this.#port.postMessage(message, transfer);
  }

  hear(message: ToWorker): void {
    switch (message.kind) {
      case 'abort':
        this.#controller(message.signal).abort(fromWire(message.reason));
        break;
      case 'forget':
        this.#signals.delete(message.signal);
        break;
      case 'release':
        this.#tensors.get(message.tensor)?.tensor.dispose();
        this.#tensors.delete(message.tensor);
        break;
      case 'dispose':
        this.#dispose(message.module);
        break;
      default:
        void this.#answer(message.kind, message.id, message);
    }
  }

  async #answer(kind: CallName, id: number, asks: object): Promise<void> {
    const handler = this.#handlers[kind] as (asks: object) => Promise<unknown>;
    try {
      const value = await handler(asks);
      const transfer = kind === 'read' ? [(value as TensorData).buffer] : [];
      this.tell({ kind: 'answer', id, value }, transfer);
    } catch (error) {
      this.tell({ kind: 'error', id, error: toWire(error) });
    }
  }

  async #openModule({
    module,
    from,
    options,
  }: Calls['open']['asks']): Promise<ModuleFacts> {
    const opened = await this.#open(from, {
      ...options,
      signal: this.#signal(options.signal),
      onProgress: (detail) => this.tell({ kind: 'progress', module, detail }),
      onLost: (detail) => this.tell({ kind: 'lost', module, detail }),
      onWarning: (detail) => this.tell({ kind: 'warning', module, detail }),
    });
    if (this.#disposed.has(module)) {
      opened.dispose();
    }
    this.#modules.set(module, opened);
    return this.#facts(module);
  }

  #facts(number: number): ModuleFacts {
    const module = this.#module(number);
    const { requirements, isBundle, hasState } = module;
    const metas = module.methods.map((name) => module.meta(name));
    return { requirements, metas, isBundle, hasState };
  }

  #module(number: number): ServedModule {
    const module = this.#modules.get(number);
    if (module === undefined || this.#disposed.has(number)) {
      throw new WebGPUError('InvalidState', 'Module: must be alive, got disposed');
    }
    return module;
  }

  #dispose(number: number): void {
    // It may be opening still.
    this.#disposed.add(number);
    this.#modules.get(number)?.dispose();
    this.#modules.delete(number);
    for (const [id, held] of this.#tensors) {
      if (held.module === number) {
        this.#tensors.delete(id);
      }
    }
  }

  #controller(number: number): AbortController {
    const found = this.#signals.get(number) ?? new AbortController();
    this.#signals.set(number, found);
    return found;
  }

  #signal(number: number | undefined): AbortSignal | undefined {
    return number === undefined ? undefined : this.#controller(number).signal;
  }

  #held(id: number): Held {
    const held = this.#tensors.get(id);
    if (held === undefined) {
      throw new WebGPUError(
        'InvalidState',
        'Tensor: must be alive, got one whose module is disposed of',
      );
    }
    return held;
  }

  // Inputs are taken at once: the page may let go of them while the call waits.
  async #withInputs<T>(
    inputs: readonly WireValue[],
    work: (given: Input[]) => Promise<T>,
  ): Promise<T> {
    const given = inputs.map((each) => this.#input(each));
    try {
      return await work(given);
    } finally {
      for (const each of given) {
        if (each instanceof Tensor) {
          each.dispose();
        }
      }
    }
  }

  #input(value: WireValue): Input {
    if (typeof value !== 'object') {
      return value;
    }
    const { type, dims, data, remote } = value;
    if (remote === undefined) {
      return new Tensor(type, data ?? [], dims);
    }
    return this.#held(remote).tensor.reshaped(dims);
  }

  #output(value: Output, module: number): WireValue {
    if (!(value instanceof Tensor)) {
      return value;
    }
    const { type, dims, host } = value;
    const wire: WireTensor = { type, dims, data: host, remote: undefined };
    if (host === undefined) {
      wire.remote = this.#nextTensor++;
      this.#tensors.set(wire.remote, { tensor: value, module });
      // What is small came with the call, and saves the page a question.
      wire.data = value.place?.gpu?.prefetched;
    }
    return wire;
  }
}
