import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { WebGPUError } from '../src/errors';
import type { Input, Output } from '../src/method';
import type { LoadOptions, ModuleInput } from '../src/module';
import { type Place, Tensor, type TensorData } from '../src/tensor';
import type { TextModule } from '../src/text/generator';
import { Connection, RemoteModule } from '../src/worker/client';
import { fromWire, type Port, toWire } from '../src/worker/messages';
import { type ServedModule, serve } from '../src/worker/serve';

/** Elements that are somewhere, and are read on demand. */
class FakePlace implements Place {
  readonly gpu = undefined;
  readonly remote = undefined;
  users = 1;
  reads = 0;

  constructor(readonly content: Float32Array<ArrayBuffer>) {}

  async read(): Promise<TensorData> {
    this.reads++;
    return this.content.slice();
  }

  share(): void {
    this.users++;
  }

  release(): void {
    this.users--;
  }
}

/** A module that adds 1, on a GPU of its own. */
class FakeModule {
  readonly requirements = { fileBytes: 9 } as ServedModule['requirements'];
  readonly methods = ['forward'];
  readonly isBundle = true;
  hasState = false;
  calls = 0;
  isDisposed = false;
  places: FakePlace[] = [];

  constructor(
    readonly from: ModuleInput,
    readonly options: LoadOptions,
  ) {}

  meta(name = 'forward') {
    return { name, inputs: [], outputs: [] };
  }

  async load(): Promise<void> {
    this.options.onProgress?.({ stage: 'ready', loaded: 1, total: 1 });
    this.options.onWarning?.('no room');
    if (this.from === 'http://test/wait') {
      await untilAborted(this.options.signal);
    }
    this.hasState = true;
  }

  async execute(
    name: string,
    inputs: readonly Input[],
    options: { signal?: AbortSignal | undefined },
  ): Promise<Output[]> {
    this.calls++;
    if (name === 'wait') {
      await untilAborted(options.signal);
    }
    const [x] = inputs;
    if (!(x instanceof Tensor)) {
      throw new WebGPUError('InvalidArgument', 'input 0 must be a tensor', {
        cause: new TypeError('why'),
      });
    }
    const data = (await x.place?.read(x.type, x.size)) ?? x.host;
    const place = new FakePlace(Float32Array.from(data as Float32Array, (v) => v + 1));
    this.places.push(place);
    return [Tensor.placed(x.type, place, x.dims), 7, true];
  }

  async profile(name: string, inputs: readonly Input[]) {
    const outputs = await this.execute(name, inputs, {});
    return { ms: 1, gpuMs: 1, isTimedByGpu: false, dispatches: [], rows: [], outputs };
  }

  async resetState(): Promise<void> {
    this.calls = 0;
  }

  stats() {
    return { calls: this.calls } as ReturnType<ServedModule['stats']>;
  }

  async verify() {
    return [
      { index: 0, method: 'forward', isRight: true, largestError: 0, problem: '' },
    ];
  }

  dispose(): void {
    this.isDisposed = true;
  }
}

function untilAborted(signal: AbortSignal | undefined): Promise<never> {
  return new Promise((_, reject) => {
    signal?.addEventListener('abort', () => reject(signal.reason));
  });
}

const made: FakeModule[] = [];
let channel: MessageChannel;
let connection: Connection;

beforeEach(async () => {
  channel = new MessageChannel();
  made.length = 0;
  connection = new Connection(channel.port1 as Port);
  serve(channel.port2 as Port, async (from, options) => {
    const module = new FakeModule(from, options);
    made.push(module);
    return module as unknown as ServedModule;
  });
  channel.port1.start();
  channel.port2.start();
  await connection.ready;
});

afterEach(() => {
  channel.port1.close();
});

async function loaded(options: LoadOptions = {}): Promise<[RemoteModule, FakeModule]> {
  const quiet = { onWarning: () => undefined, ...options };
  const module = await RemoteModule.open(connection, 'http://test/m.pte', quiet);
  await module.load();
  return [module, made.at(-1) as FakeModule];
}

function ones(): Tensor {
  return new Tensor('float32', new Float32Array([1, 1, 1]), [3]);
}

async function settled(): Promise<void> {
  // Messages in one direction keep their order: what was told before was heard.
  await connection.call('stats', { module: -1 }).catch(() => undefined);
}

describe('a module in a worker', () => {
  it('has what a module has', async () => {
    const onProgress = vi.fn();
    const onWarning = vi.fn();
    const [module, fake] = await loaded({
      onProgress,
      onWarning,
      methods: ['forward'],
    });
    const asText: TextModule = module; // text can be generated with it
    expect(asText.methods).toEqual(['forward']);
    expect(fake.options.methods).toEqual(['forward']);
    expect(onProgress).toHaveBeenCalledWith({ stage: 'ready', loaded: 1, total: 1 });
    expect(onWarning).toHaveBeenCalledWith('no room');
    expect(module.requirements.fileBytes).toBe(9);
    expect([module.methods, module.isBundle, module.hasState]).toEqual([
      ['forward'],
      true,
      true,
    ]);
    expect(module.meta().name).toBe('forward');
    expect(() => module.meta('other')).toThrow('must be one of forward, got other');
    await module.forward([ones()]);
    expect(await module.stats()).toEqual({ calls: 1 });
    await module.resetState();
    expect(await module.stats()).toEqual({ calls: 0 });
    expect((await module.verify())[0]?.isRight).toBe(true);
    const { outputs, ms } = await module.profile('forward', [ones()]);
    expect([ms, outputs.length]).toEqual([1, 3]);
  });

  it('leaves results where they are until they are read', async () => {
    const [module, fake] = await loaded();
    const x = ones();
    const [y, seven, yes] = await module.forward([x]);
    expect([seven, yes]).toEqual([7, true]);
    expect(x.host?.length).toBe(3); // copied, not moved
    const [z] = await module.forward([y as Tensor]);
    expect(fake.places.map(({ reads }) => reads)).toEqual([1, 0]); // by the second call
    expect([...(await (z as Tensor).data())]).toEqual([3, 3, 3]);
    expect([...(await (y as Tensor).data({ keep: true }))]).toEqual([2, 2, 2]);
    await settled();
    expect(fake.places.map(({ users }) => users)).toEqual([1, 0]);
    (y as Tensor).dispose();
    await settled();
    expect(fake.places[0]?.users).toBe(0);
  });

  it('takes an input that is let go of while the call waits', async () => {
    const [module] = await loaded();
    const [y] = await module.forward([ones()]);
    const next = module.forward([y as Tensor]);
    await Promise.resolve();
    await Promise.resolve();
    (y as Tensor).dispose();
    expect([...(await ((await next)[0] as Tensor).data())]).toEqual([3, 3, 3]);
  });

  it('tells errors with code, text and cause', async () => {
    const [module] = await loaded();
    const error = await module.forward([3]).catch((found: unknown) => found);
    expect(error).toBeInstanceOf(WebGPUError);
    expect(error).toMatchObject({
      code: 'InvalidArgument',
      number: 0x12,
      message: 'input 0 must be a tensor',
      cause: { name: 'TypeError', message: 'why' },
    });
  });

  it('passes signals on, and gives their own reason', async () => {
    const controller = new AbortController();
    const reason = new Error('enough');
    const { signal } = controller;
    const [module] = await loaded();
    const waiting = module.execute('wait', [], { signal });
    const opened = await RemoteModule.open(connection, 'http://test/wait', {
      signal,
      onWarning: () => undefined,
    });
    const loading = opened.load();
    await settled();
    controller.abort(reason);
    const rejected = { status: 'rejected', reason };
    expect(await Promise.allSettled([waiting, loading])).toEqual([rejected, rejected]);
    await expect(module.execute('wait', [], { signal })).rejects.toBe(reason);
    await expect(RemoteModule.open(connection, 'x', { signal })).rejects.toBe(reason);
  });

  it('is disposed of with its results', async () => {
    const [module, fake] = await loaded();
    const [y] = await module.forward([ones()]);
    module.dispose();
    await settled();
    expect(fake.isDisposed).toBe(true);
    await expect(module.forward([ones()])).rejects.toThrow('got disposed');
    await expect((y as Tensor).data()).rejects.toMatchObject({ code: 'InvalidState' });
  });

  it('rejects what waits when the worker ends', async () => {
    const [module] = await loaded();
    const waiting = module.execute('wait', []);
    await settled();
    connection.end('one that has ended');
    await expect(waiting).rejects.toThrow(
      'worker: must be alive, got one that has ended',
    );
    await expect(module.forward([ones()])).rejects.toMatchObject({
      code: 'InvalidState',
    });
  });

  it('refuses what cannot be sent', async () => {
    const device = {} as GPUDevice;
    await expect(
      RemoteModule.open(connection, 'http://x/', { device }),
    ).rejects.toThrow('a device must be made by the worker');
    const adapter = { compatible: () => undefined } as object;
    await expect(
      RemoteModule.open(connection, 'http://x/', { adapter }),
    ).rejects.toThrow('must be such that it can be sent');
  });

  it('gives a stream away', async () => {
    const stream = new Blob(['abc']).stream();
    await RemoteModule.open(connection, stream, {});
    const { from } = made[0] as FakeModule;
    expect(await new Response(from as ReadableStream).text()).toBe('abc');
  });
});

describe('errors on their way', () => {
  it('keep their names', () => {
    const timeout = new DOMException('late', 'TimeoutError');
    expect(fromWire(toWire(timeout))).toMatchObject({
      name: 'TimeoutError',
      message: 'late',
    });
    expect(fromWire(toWire(new RangeError('far')))).toMatchObject({
      name: 'RangeError',
    });
    expect(fromWire(toWire('text')).message).toBe('text');
  });

  it('do not follow causes for ever', () => {
    const error = new Error('a');
    error.cause = error;
    expect(fromWire(toWire(error)).message).toBe('a');
  });
});
