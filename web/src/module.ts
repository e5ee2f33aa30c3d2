/** A program on the GPU: `Module`, by ExecuTorch's names. */

import { WebGPUError } from './errors';
import { type BundledCase, readCases } from './file/bundle';
import type { Span } from './file/program';
import { LOST } from './gpu/buffer_place';
import { LoadingSignal } from './loading_signal';
import { type MethodMeta, metaOf } from './meta';
import type { Input, Output } from './method';
import { openProgram, type Requirements, readMethods, requirementsOf } from './open';
import type { CompileWhen } from './player/kernels';
import type { PlayOptions } from './player/player';
import { type Profile, summarize } from './profile_table';
import { type PlannedMethod, Session } from './session';
import { type CacheKind, openSource, type Source, type SourceFrom } from './source';
import { turn } from './turn';
import { compareCase, type Verified, type VerifyOptions } from './verify';

/** How far loading is. */
export interface Progress {
  /**
   * `download`: bytes of the file that came, from the network or a cache; `kernels`:
   * compiled ones, counted; `weights`: bytes that are on the GPU; `ready`: all is done.
   */
  stage: 'download' | 'kernels' | 'weights' | 'ready';
  loaded: number;
  /** 0 if it is not known yet. */
  total: number;
}

/** Why a device is gone, and what becomes of the module. */
export interface Lost {
  reason: GPUDeviceLostReason;
  message: string;
  /** Whether the next call gets a new device by itself. */
  recovers: boolean;
}

export interface LoadOptions {
  onProgress?: ((progress: Progress) => void) | undefined;
  /** Ends loading, with its reason; means nothing to what is loaded. */
  signal?: AbortSignal | undefined;
  /** Where a URL's file is kept for the next time; 'cache' unless said. */
  cache?: CacheKind | undefined;
  /** What the whole file must be, as in HTML: `sha384-` and the digest in base64. */
  integrity?: string | undefined;
  /** Told what went wrong without ending the load: no room in a cache; else the console. */
  onWarning?: ((message: string) => void) | undefined;
  /** The caller's own device, which is never destroyed. */
  device?: GPUDevice | undefined;
  /** What is asked of the browser, if there is no `device`. */
  adapter?: GPURequestAdapterOptions | undefined;
  /** Whether weights must be what their keys are the hashes of; true unless said. */
  verify?: boolean | undefined;
  /** Whether a lost device is replaced; true unless said. Not for a caller's own. */
  recover?: boolean | undefined;
  /** Told when the device is lost. */
  onLost?: ((lost: Lost) => void) | undefined;
  /**
   * When kernels are compiled that not all sizes need: with the first `call` that needs
   * them, unless said, or all at `load`, so that no call waits for the driver.
   */
  compile?: CompileWhen | undefined;
  /** Those to load; all unless said. */
  methods?: readonly string[] | undefined;
  /** Whether halves are computed as such where the GPU can; true unless said. */
  f16?: boolean | undefined;
  /** Whether subgroups are used where the GPU has them; true unless said. */
  subgroups?: boolean | undefined;
  /**
   * Whether a software adapter gets kernels for processors; true unless said. False
   * gives it those for GPUs, which are slow there.
   */
  cpuKernels?: boolean | undefined;
}

export interface ExecuteOptions {
  signal?: AbortSignal | undefined;
}

/** What was done so far. */
export interface Stats {
  adapter: string;
  /** The kinds of device that the plans in use are for. */
  profiles: string[];
  calls: number;
  dispatches: number;
  submits: number;
  kernels: number;
  weightBytes: number;
  /** Of all buffers, weights included. */
  gpuBytes: number;
  /** What the last load took; the first one with `open`. */
  loadMs: number;
  /** How often a lost device was replaced. */
  recoveries: number;
}

/** What `Module.load` takes. */
export type ModuleInput = SourceFrom;

/**
 * A program of ExecuTorch whose methods run on WebGPU.
 *
 * ```ts
 * const module = await Module.load('model.pte');
 * const [y] = await module.forward([new Tensor('float32', data, [1, 8])]);
 * console.log(await y.data());
 * ```
 */
export class Module {
  /** What the program needs; known before its weights are fetched. */
  readonly requirements: Requirements;
  readonly #source: Source;
  readonly #options: LoadOptions;
  readonly #opened: Awaited<ReturnType<typeof openProgram>>;
  readonly #metas: ReadonlyMap<string, MethodMeta>;
  readonly #signal: LoadingSignal;
  // Of what comes before the first load.
  #openMs: number;
  // Plans to load from; undefined once they are used, and then read again.
  #planned: PlannedMethod[] | undefined;
  #session: Session | undefined;
  #loading: Promise<void> | undefined;
  #last: Promise<unknown> = Promise.resolve();
  #isDisposed = false;
  #calls = 0;
  #recoveries = 0;
  #loadMs = 0;

  private constructor(
    source: Source,
    options: LoadOptions,
    opened: Awaited<ReturnType<typeof openProgram>>,
    planned: PlannedMethod[],
    signal: LoadingSignal,
    openMs: number,
  ) {
    this.#source = source;
    this.#options = options;
    this.#opened = opened;
    this.#planned = planned;
    this.#signal = signal;
    this.#openMs = openMs;
    this.requirements = requirementsOf(source, opened.program, planned);
    this.#metas = new Map(
      planned.map(({ method, plans }) => [method.name, metaOf(method, plans)]),
    );
  }

  /** Reads a program and its plans, makes its kernels and fetches its weights. */
  static async load(from: ModuleInput, options: LoadOptions = {}): Promise<Module> {
    const module = await Module.open(from, options);
    try {
      await module.load();
    } catch (error) {
      module.dispose();
      throw error;
    }
    return module;
  }

  /**
   * Reads a program and its plans, but no weights: `requirements` and `meta()` are there,
   * and no GPU is asked for. `load()` does the rest.
   */
  static async open(from: ModuleInput, options: LoadOptions = {}): Promise<Module> {
    const began = performance.now();
    const { cache, integrity, methods, onProgress, onWarning } = options;
    const loading = new LoadingSignal(options.signal);
    const { signal } = loading;
    const onBytes = (loaded: number, total = 0): void =>
      onProgress?.({ stage: 'download', loaded, total });
    const source = await openSource(from, {
      ...{ signal, cache, integrity, onBytes, onWarning },
    });
    try {
      const opened = await openProgram(source);
      const planned = await readMethods(source, opened.program, methods);
      signal.throwIfAborted();
      const openMs = performance.now() - began;
      return new Module(source, options, opened, planned, loading, openMs);
    } catch (error) {
      loading.end();
      await source.refuse(error);
      await source.close();
      throw error;
    }
  }

  /** The names of the methods that are loaded. */
  get methods(): string[] {
    return [...this.#metas.keys()];
  }

  /** What a method takes and gives. */
  meta(name = 'forward'): MethodMeta {
    const found = this.#metas.get(name);
    if (found === undefined) {
      throw new WebGPUError(
        'InvalidArgument',
        `Module: a method must be one of ${this.methods.join(', ')}, got ${name}`,
      );
    }
    return found;
  }

  /** The device that it is on; undefined before `load()`. */
  get device(): GPUDevice | undefined {
    return this.#session?.gpu.device;
  }

  /** Whether a file has calls of its own, for `verify()`. */
  get isBundle(): boolean {
    return this.#opened.isBundle;
  }

  /** Whether calls leave something behind for the next: `resetState()` forgets it. */
  get hasState(): boolean {
    return this.#session?.hasStates ?? false;
  }

  /** Fetches the weights and makes the kernels; does nothing if that is done. */
  load(): Promise<void> {
    this.#loading ??= this.#start().catch(async (error: unknown) => {
      this.#loading = undefined;
      await this.#source.refuse(error);
      throw error;
    });
    return this.#loading;
  }

  async #start(): Promise<void> {
    this.#checkAlive();
    const began = performance.now();
    const { program } = this.#opened;
    const source = this.#source;
    const options = this.#options;
    // Kernels' texts are let go when they are compiled.
    const methods = this.#planned ?? (await readMethods(source, program, this.methods));
    this.#planned = undefined;
    const tell = (stage: Progress['stage'], loaded: number, total: number): void =>
      options.onProgress?.({ stage, loaded, total });
    const session = await Session.start({
      ...{ program, source, methods },
      device: options.device,
      adapter: options.adapter,
      allowed: {
        f16: options.f16 ?? true,
        subgroups: options.subgroups ?? true,
        cpuKernels: options.cpuKernels ?? true,
      },
      verify: options.verify ?? true,
      compile: options.compile ?? 'call',
      signal: this.#signal.signal,
      onKernels: (done, total) => tell('kernels', done, total),
      onWeights: (bytes, total) => tell('weights', bytes, total),
    });
    try {
      await source.finish();
      this.#checkAlive();
    } catch (error) {
      session.dispose();
      throw error;
    }
    this.#signal.end();
    this.#session = session;
    this.#loadMs = this.#openMs + performance.now() - began;
    this.#openMs = 0;
    this.#watch(session);
    tell('ready', program.size, program.size);
  }

  #watch(session: Session): void {
    session.gpu.lost.then(({ reason, message }) => {
      if (this.#session === session && !this.#isDisposed) {
        this.#options.onLost?.({ reason, message, recovers: this.#recovers });
      }
    });
  }

  get #recovers(): boolean {
    return (this.#options.recover ?? true) && this.#options.device === undefined;
  }

  #checkAlive(): void {
    if (this.#isDisposed) {
      throw new WebGPUError('InvalidState', 'Module: must be alive, got disposed');
    }
  }

  /** Runs the method `forward`. */
  forward(inputs: readonly Input[], options: ExecuteOptions = {}): Promise<Output[]> {
    return this.execute('forward', inputs, options);
  }

  /**
   * Runs a method. Calls follow each other; results stay on the GPU until their `data()`
   * is asked for. If the device is lost, the call is made again on a new one, unless
   * calls before it have left a state behind, which is lost then.
   */
  execute(
    name: string,
    inputs: readonly Input[],
    options: ExecuteOptions = {},
  ): Promise<Output[]> {
    return this.#queued(() => this.#run(name, inputs, options));
  }

  // Calls share buffers: each starts when all of the one before is submitted.
  #queued<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#last.then(work);
    this.#last = done.catch(() => undefined);
    return done;
  }

  async #run(
    name: string,
    inputs: readonly Input[],
    options: PlayOptions,
  ): Promise<Output[]> {
    this.meta(name);
    options.signal?.throwIfAborted();
    const session = await this.#ready();
    const wasTouched = session.isTouched;
    this.#calls++;
    try {
      return await runIn(session, name, inputs, options);
    } catch (error) {
      // It may have been lost only just now.
      await Promise.race([session.gpu.lost, turn()]);
      if (!session.gpu.isLost || !this.#recovers) {
        throw error;
      }
      return runIn(await this.#ready(wasTouched), name, inputs, options);
    }
  }

  // A session whose device is alive, as far as is known. If a state is lost with another
  // one, there is a new session, and an error.
  async #ready(wasTouched = this.#session?.isTouched ?? false): Promise<Session> {
    this.#checkAlive();
    let session = this.#session;
    if (session === undefined) {
      await this.load();
      session = this.#session;
    }
    if (session?.gpu.isLost) {
      if (!this.#recovers) {
        throw new WebGPUError('DelegateInvalidHandle', LOST);
      }
      session.dispose();
      this.#session = undefined;
      this.#loading = undefined;
      await this.load();
      this.#recoveries++;
      session = this.#session;
      if (wasTouched) {
        throw new WebGPUError(
          'InvalidState',
          "Module: the GPU device must keep the module's state, got lost; there is a new " +
            'device with the state as it was loaded',
        );
      }
    }
    if (session === undefined) {
      throw new WebGPUError('InvalidState', 'Module: must be loaded, got nothing');
    }
    return session;
  }

  /** Gives all states, such as caches of keys and values, their content at load. */
  resetState(): Promise<void> {
    return this.#queued(async () => (await this.#ready(false)).resetState());
  }

  /** What was done so far, and where. */
  stats(): Stats {
    const session = this.#session;
    return {
      adapter: session?.gpu.name ?? '',
      profiles: session?.profiles ?? [],
      calls: this.#calls,
      dispatches: session?.counters.dispatches ?? 0,
      submits: session?.counters.submits ?? 0,
      kernels: session?.kernels ?? 0,
      weightBytes: session?.weightBytes ?? 0,
      gpuBytes: session?.bytes ?? 0,
      loadMs: this.#loadMs,
      recoveries: this.#recoveries,
    };
  }

  /** Runs a method once and times each of its kernels. */
  profile(name: string, inputs: readonly Input[]): Promise<Profile> {
    return this.#queued(async () => {
      const times: PlayOptions['times'] = [];
      const began = performance.now();
      const outputs = await this.#run(name, inputs, { times });
      const isTimed = this.device?.features.has('timestamp-query') ?? false;
      return summarize(times, performance.now() - began, isTimed, outputs);
    });
  }

  /**
   * Runs the calls that a bundled program (.bpte) has, and compares. States are as at
   * load before each, and after the last.
   */
  async verify(options: VerifyOptions = {}): Promise<Verified[]> {
    const cases = await this.#cases();
    const found: Verified[] = [];
    for (const [index, { method, inputs, expected }] of cases.entries()) {
      if (this.#metas.has(method)) {
        await this.resetState();
        const outputs = await this.execute(method, inputs, options);
        found.push(await compareCase({ index, method }, outputs, expected, options));
      }
    }
    await this.resetState();
    return found;
  }

  async #cases(): Promise<BundledCase[]> {
    this.#checkAlive();
    const span: Span = this.#opened.span;
    if (!this.isBundle) {
      throw new WebGPUError(
        'InvalidState',
        'Module: verify() must be given a bundled program, got a plain one; make a ' +
          '.bpte with executorch.devtools.BundledProgram',
      );
    }
    await this.load();
    return readCases(this.#source, span);
  }

  /** Frees the GPU's memory, results that were not read included. */
  dispose(): void {
    if (this.#isDisposed) {
      return;
    }
    this.#isDisposed = true;
    this.#signal.end();
    this.#session?.dispose();
    this.#session = undefined;
    this.#planned = undefined;
    void this.#source.close();
  }
}

function runIn(
  session: Session,
  name: string,
  inputs: readonly Input[],
  options: PlayOptions,
): Promise<Output[]> {
  const method = session.method(name);
  if (method === undefined) {
    throw new WebGPUError('Internal', `${name}: a method must be loaded`);
  }
  return method.run(inputs, options);
}
