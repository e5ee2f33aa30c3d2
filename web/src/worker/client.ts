/** The page's side: modules that a worker has, by the same names as `Module`. */

import { WebGPUError } from '../errors';
import type { MethodMeta } from '../meta';
import type { Input, Output } from '../method';
import type { ExecuteOptions, LoadOptions, ModuleInput, Stats } from '../module';
import type { Requirements } from '../open';
import type { Profile } from '../profile_table';
import { resolveUrl } from '../source';
import { type Place, Tensor, type TensorData } from '../tensor';
import type { Verified, VerifyOptions } from '../verify';
import {
  type CallName,
  type Calls,
  type FromWorker,
  fromWire,
  type ModuleFacts,
  type Port,
  type ToWorker,
  toWire,
  type WireLoadOptions,
  type WireValue,
} from './messages';

interface Waiting {
  resolve: (value: never) => void;
  reject: (error: unknown) => void;
  signal: AbortSignal | undefined;
}

/** The connection to a worker. @internal */
export class Connection {
  readonly #port: Port;
  readonly #waiting = new Map<number, Waiting>();
  readonly #listeners = new Map<number, LoadOptions>();
  #next = 1;
  #dead: WebGPUError | undefined;
  #ready: (lock: string | undefined) => void = () => undefined;
  /** Resolves when the worker listens, with the lock that it holds while it lives. */
  readonly ready = new Promise<string | undefined>((resolve, reject) => {
    this.#ready = resolve;
    this.#waiting.set(0, { resolve, reject, signal: undefined });
  });

  constructor(port: Port) {
    this.#port = port;
    // Who waits for it hears of it; nobody need.
    this.ready.catch(() => undefined);
    port.addEventListener('message', ({ data }) => this.#hear(data as FromWorker));
  }

  /** A number for a module, a call or a signal. */
  number(): number {
    return this.#next++;
  }

  listen(module: number, options: LoadOptions): void {
    this.#listeners.set(module, options);
  }

  /** The worker is no more: what waits and what comes is rejected. */
  end(why: string): void {
    if (this.#dead !== undefined) {
      return;
    }
    this.#dead = new WebGPUError('InvalidState', `worker: must be alive, got ${why}`);
    for (const { reject } of this.#waiting.values()) {
      reject(this.#dead);
    }
    this.#waiting.clear();
    this.#listeners.clear();
  }

  tell(message: ToWorker, transfer: Transferable[] = []): void {
    if (this.#dead === undefined) {
      this.#port.postMessage(message, transfer);
    }
  }

  async call<Name extends CallName>(
    kind: Name,
    asks: Calls[Name]['asks'],
    signal?: AbortSignal,
    transfer: Transferable[] = [],
  ): Promise<Calls[Name]['gets']> {
    if (this.#dead !== undefined) {
      throw this.#dead;
    }
    const id = this.number();
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, signal });
      try {
        this.#port.postMessage({ kind, id, ...asks }, transfer);
      } catch (error) {
        this.#waiting.delete(id);
        reject(
          new WebGPUError(
            'InvalidArgument',
            `worker: what is given must be such that it can be sent, got ${error}`,
            { cause: error },
          ),
        );
      }
    });
  }

  #hear(message: FromWorker): void {
    switch (message.kind) {
      case 'ready':
        this.#waiting.delete(0);
        this.#ready(message.lock);
        break;
      case 'answer':
      case 'error': {
        const waiting = this.#waiting.get(message.id);
        this.#waiting.delete(message.id);
        if (message.kind === 'answer') {
          waiting?.resolve(message.value as never);
        } else {
          // The caller's own reason, and not a copy of it.
          const isAborted = waiting?.signal?.aborted ?? false;
          waiting?.reject(
            isAborted ? waiting?.signal?.reason : fromWire(message.error),
          );
        }
        break;
      }
      case 'progress':
        this.#listeners.get(message.module)?.onProgress?.(message.detail);
        break;
      case 'lost':
        this.#listeners.get(message.module)?.onLost?.(message.detail);
        break;
      case 'warning': {
        const listener = this.#listeners.get(message.module);
        (listener?.onWarning ?? console.warn)(message.detail);
        break;
      }
    }
  }

  forget(module: number): void {
    this.#listeners.delete(module);
    this.tell({ kind: 'dispose', module });
  }

  /** Numbers a signal; the second function ends that it is followed. */
  follow(signal: AbortSignal | undefined): [number | undefined, () => void] {
    if (signal === undefined) {
      return [undefined, () => undefined];
    }
    const number = this.number();
    const abort = () =>
      this.tell({ kind: 'abort', signal: number, reason: toWire(signal.reason) });
    signal.addEventListener('abort', abort);
    return [
      number,
      () => {
        signal.removeEventListener('abort', abort);
        this.tell({ kind: 'forget', signal: number });
      },
    ];
  }
}

/** Elements that a worker has. */
class RemotePlace implements Place {
  readonly gpu = undefined;
  #users = 1;

  constructor(
    readonly connection: Connection,
    readonly remote: number,
    readonly sent: TensorData | undefined,
  ) {}

  async read(): Promise<TensorData> {
    return this.sent ?? this.connection.call('read', { tensor: this.remote });
  }

  share(): void {
    this.#users++;
  }

  release(): void {
    this.#users--;
    if (this.#users === 0) {
      this.connection.tell({ kind: 'release', tensor: this.remote });
    }
  }
}

/** A module that a worker has; what is asked of it is as `Module` has it. */
export class RemoteModule {
  readonly #connection: Connection;
  readonly #number: number;
  readonly #forget: () => void;
  readonly #signal: AbortSignal | undefined;
  #facts: ModuleFacts;
  #isDisposed = false;

  private constructor(
    connection: Connection,
    number: number,
    facts: ModuleFacts,
    signal: AbortSignal | undefined,
    forget: () => void,
  ) {
    this.#connection = connection;
    this.#number = number;
    this.#facts = facts;
    this.#signal = signal;
    this.#forget = forget;
  }

  /** @internal */
  static async open(
    connection: Connection,
    from: ModuleInput,
    options: LoadOptions,
  ): Promise<RemoteModule> {
    const { onProgress, onLost, onWarning, signal, device, ...rest } = options;
    if (device !== undefined) {
      throw new WebGPUError(
        'InvalidArgument',
        'worker: a device must be made by the worker, got one of the page; load by ' +
          'Module.load to use it',
      );
    }
    signal?.throwIfAborted();
    const isAddress = typeof from === 'string' || from instanceof URL;
    const sent = isAddress ? resolveUrl(from) : from;
    const transfer = sent instanceof ReadableStream ? [sent] : [];
    const module = connection.number();
    const [number, forget] = connection.follow(signal);
    connection.listen(module, { onProgress, onLost, onWarning });
    const sendable: WireLoadOptions = { ...rest, signal: number };
    try {
      const asks = { module, from: sent, options: sendable };
      const facts = await connection.call('open', asks, signal, transfer);
      return new RemoteModule(connection, module, facts, signal, forget);
    } catch (error) {
      forget();
      connection.forget(module);
      throw error;
    }
  }

  /** Fetches the weights and makes the kernels; does nothing if that is done. */
  async load(): Promise<void> {
    this.#check();
    const asks = { module: this.#number };
    this.#facts = await this.#connection.call('load', asks, this.#signal);
  }

  get requirements(): Requirements {
    return this.#facts.requirements;
  }

  get isBundle(): boolean {
    return this.#facts.isBundle;
  }

  get hasState(): boolean {
    return this.#facts.hasState;
  }

  get methods(): string[] {
    return this.#facts.metas.map(({ name }) => name);
  }

  meta(name = 'forward'): MethodMeta {
    const found = this.#facts.metas.find((each) => each.name === name);
    if (found === undefined) {
      throw new WebGPUError(
        'InvalidArgument',
        `Module: a method must be one of ${this.methods.join(', ')}, got ${name}`,
      );
    }
    return found;
  }

  forward(inputs: readonly Input[], options: ExecuteOptions = {}): Promise<Output[]> {
    return this.execute('forward', inputs, options);
  }

  /** Results stay on the worker's GPU until their `data()` is asked for. */
  async execute(
    name: string,
    inputs: readonly Input[],
    options: ExecuteOptions = {},
  ): Promise<Output[]> {
    this.#check();
    const { signal } = options;
    signal?.throwIfAborted();
    const sent = await this.#send(inputs);
    const [number, forget] = this.#connection.follow(signal);
    try {
      const asks = { module: this.#number, name, inputs: sent, signal: number };
      const outputs = await this.#connection.call('execute', asks, signal);
      return outputs.map((each) => this.#receive(each));
    } finally {
      forget();
    }
  }

  async profile(name: string, inputs: readonly Input[]): Promise<Profile> {
    this.#check();
    const asks = { module: this.#number, name, inputs: await this.#send(inputs) };
    const profile = await this.#connection.call('profile', asks);
    return { ...profile, outputs: profile.outputs.map((each) => this.#receive(each)) };
  }

  async resetState(): Promise<void> {
    this.#check();
    await this.#connection.call('resetState', { module: this.#number });
  }

  /** What was done so far; a promise, unlike that of `Module`. */
  async stats(): Promise<Stats> {
    this.#check();
    return this.#connection.call('stats', { module: this.#number });
  }

  async verify(options: VerifyOptions = {}): Promise<Verified[]> {
    this.#check();
    const { signal, ...rest } = options;
    const [number, forget] = this.#connection.follow(signal);
    try {
      const asks = { module: this.#number, options: rest, signal: number };
      return await this.#connection.call('verify', asks, signal);
    } finally {
      forget();
    }
  }

  /** Frees the GPU's memory, results that were not read included. */
  dispose(): void {
    if (!this.#isDisposed) {
      this.#isDisposed = true;
      this.#forget();
      this.#connection.forget(this.#number);
    }
  }

  #check(): void {
    if (this.#isDisposed) {
      throw new WebGPUError('InvalidState', 'Module: must be alive, got disposed');
    }
  }

  // What is the worker's already is named, all else is copied: the page keeps its own.
  #send(inputs: readonly Input[]): Promise<WireValue[]> {
    return Promise.all(
      inputs.map(async (input) => {
        if (!(input instanceof Tensor)) {
          return input;
        }
        const { type, dims, place } = input;
        if (place instanceof RemotePlace && place.connection === this.#connection) {
          return { type, dims, data: undefined, remote: place.remote };
        }
        const data = input.host ?? (await input.data({ keep: true }));
        return { type, dims, data, remote: undefined };
      }),
    );
  }

  #receive(value: WireValue): Output {
    if (typeof value !== 'object') {
      return typeof value === 'bigint' ? Number(value) : value;
    }
    const { type, dims, data, remote } = value;
    if (remote === undefined) {
      return new Tensor(type, data ?? [], dims);
    }
    const place = new RemotePlace(this.#connection, remote, data);
    return Tensor.placed(type, place, dims);
  }
}
