/** The methods of a program on one GPU device, until the device is lost. */

import { type Code, WebGPUError } from './errors';
import { readPlans } from './file/plan_file';
import type { Plans } from './file/plans';
import type { Program, ProgramMethod, Value } from './file/program';
import { adapterCaps, adapterName, Gpu, Memory, requestAdapter } from './gpu/device';
import { type ByteSource, Weights } from './gpu/upload';
import { type Callable, Method } from './method';
import type { CompileWhen } from './player/kernels';
import { Player } from './player/player';
import { type Allowed, capsOf, chooseProfile, type DeviceCaps } from './player/profile';
import type { Counters } from './player/replay';
import { asData, Tensor, typeName } from './tensor';

/** A file of which any part can be read. */
export interface ProgramSource extends ByteSource {
  /** Undefined until it is known. */
  readonly size: number | undefined;
  read(start: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
}

/** A method, and the plans of its delegates in their order. */
export interface PlannedMethod {
  method: ProgramMethod;
  plans: Plans[];
}

/** Runs some work; what it throws on purpose says where. */
export async function told<T>(where: string, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof WebGPUError) {
      const code: Code = error.code;
      throw new WebGPUError(code, `${where}: ${error.message}`, { cause: error });
    }
    throw error;
  }
}

/** Reads the plans of a method from its file. */
export function readMethod(
  source: ProgramSource,
  method: ProgramMethod,
): Promise<PlannedMethod> {
  return told(`init of ${method.name}`, async () => {
    const plans: Plans[] = [];
    for (const { data } of method.delegates) {
      plans.push(readPlans(await source.read(data.start, data.start + data.size)));
    }
    return { method, plans };
  });
}

export interface SessionOptions {
  program: Program;
  source: ProgramSource;
  methods: readonly PlannedMethod[];
  /** A caller's own, or what to ask the browser for. */
  device: GPUDevice | undefined;
  adapter: GPURequestAdapterOptions | undefined;
  allowed: Allowed;
  verify: boolean;
  compile: CompileWhen;
  signal: AbortSignal | undefined;
  onKernels: (done: number, total: number) => void;
  onWeights: (bytes: number, total: number) => void;
}

/** Where a program is to be played. */
interface Target {
  caps: DeviceCaps;
  name: string;
  gpu: (players: readonly Planned[]) => Gpu | Promise<Gpu>;
}

interface Planned {
  method: ProgramMethod;
  plans: Plans;
  profile: Plans['profiles'][number];
}

async function findTarget({
  device,
  adapter: wanted,
}: SessionOptions): Promise<Target> {
  if (device !== undefined) {
    return {
      caps: capsOf(device, device.adapterInfo),
      name: adapterName(device.adapterInfo),
      gpu: () => Gpu.borrow(device),
    };
  }
  const adapter = await requestAdapter(wanted);
  return {
    caps: adapterCaps(adapter),
    name: adapterName(adapter.info),
    gpu: (players) =>
      Gpu.get(
        adapter,
        JSON.stringify(wanted ?? {}),
        players.map((each) => each.profile),
      ),
  };
}

export class Session {
  readonly counters: Counters = { dispatches: 0, submits: 0 };
  readonly #methods = new Map<string, Method>();
  readonly #players: Player[] = [];
  readonly #memory: Memory;
  readonly #weights: Weights;

  private constructor(
    readonly gpu: Gpu,
    readonly options: SessionOptions,
  ) {
    this.#memory = new Memory(gpu);
    const { namedData } = options.program;
    this.#weights = new Weights(this.#memory, namedData, options.verify);
  }

  /**
   * Loads all methods. What the device must have is compared before any weight is read.
   */
  static async start(options: SessionOptions): Promise<Session> {
    const target = await findTarget(options);
    const planned: Planned[] = [];
    for (const { method, plans } of options.methods) {
      await told(`init of ${method.name}`, () => {
        for (const each of plans) {
          const profile = chooseProfile(
            each,
            target.caps,
            target.name,
            options.allowed,
          );
          planned.push({ method, plans: each, profile });
        }
      });
    }
    options.signal?.throwIfAborted();
    const session = new Session(await target.gpu(planned), options);
    try {
      await session.#load(planned);
    } catch (error) {
      session.dispose();
      throw error;
    }
    return session;
  }

  async #load(planned: readonly Planned[]): Promise<void> {
    for (const { method, plans, profile } of planned) {
      const { name } = method;
      const player = new Player(name, plans, profile, this.#memory, this.counters);
      this.#players.push(player);
      await told(`init of ${name}`, () => player.makeBuffers(this.#weights));
    }
    await this.#fill(planned);
    await this.resetState();
    let first = 0;
    for (const { method } of this.options.methods) {
      const last = first + method.delegates.length;
      const callables = this.#players
        .slice(first, last)
        .map((each) => called(method, each));
      const constants = await this.#constants(method);
      this.#methods.set(method.name, new Method(method, callables, constants));
      first = last;
    }
  }

  // Kernels are compiled while weights come; what fails first ends both.
  async #fill(planned: readonly Planned[]): Promise<void> {
    const { signal, source, onKernels, onWeights } = this.options;
    const ended = new AbortController();
    const either = AbortSignal.any([ended.signal, ...(signal ? [signal] : [])]);
    const names = [...new Set(planned.map(({ method }) => method.name))].join(', ');
    const wanted = this.#players.map(({ kernels }) =>
      kernels.atLoad(this.options.compile),
    );
    const kernels = wanted.reduce((sum, each) => sum + each.size, 0);
    const bytes = this.#weights.missing;
    let compiled = 0;
    let uploaded = 0;
    onKernels(0, kernels);
    onWeights(0, bytes);
    const work = [
      ...this.#players.map((player, i) =>
        told(`init of ${planned[i]?.method.name}`, () =>
          player.kernels.compile(wanted[i] ?? new Map(), () => {
            compiled++;
            onKernels(compiled, kernels);
          }),
        ),
      ),
      told(`init of ${names}`, () =>
        this.#weights.upload(source, {
          ...{ name: names, verify: this.options.verify, signal: either },
          onBytes: (count) => {
            uploaded += count;
            onWeights(uploaded, bytes);
          },
        }),
      ),
    ];
    try {
      await Promise.all(work);
    } catch (error) {
      ended.abort(error);
      await Promise.allSettled(work);
      throw error;
    }
    signal?.throwIfAborted();
  }

  // The tensors in the file that instructions use, beside what delegates have.
  async #constants(method: ProgramMethod): Promise<Map<number, Tensor>> {
    const found = new Map<number, Tensor>();
    for (const number of usedValues(method)) {
      const value = method.values[number] as Value;
      if (value.kind !== 'tensor' || value.data === undefined) {
        continue;
      }
      const type = typeName(value.scalarType);
      if (type === undefined) {
        throw new WebGPUError(
          'NotSupported',
          `${method.name}: a constant must have a type of a tensor, got scalar type ` +
            `${value.scalarType}`,
        );
      }
      const { start, size } = value.data;
      const bytes = (await this.options.source.read(start, start + size)).slice();
      found.set(number, new Tensor(type, asData(type, bytes), value.sizes));
    }
    return found;
  }

  method(name: string): Method | undefined {
    return this.#methods.get(name);
  }

  get hasStates(): boolean {
    return this.#players.some((player) => player.hasStates);
  }

  /** Whether calls have left something behind. */
  get isTouched(): boolean {
    return this.#players.some((player) => player.isTouched);
  }

  get profiles(): string[] {
    return [...new Set(this.#players.map(({ profile }) => profile.name))];
  }

  get kernels(): number {
    return new Set(this.#players.flatMap((player) => [...player.pipelines])).size;
  }

  get weightBytes(): number {
    return this.#weights.bytes;
  }

  /** Bytes of all buffers, weights included. */
  get bytes(): number {
    return this.#weights.bytes + this.#memory.bytes;
  }

  async resetState(): Promise<void> {
    await Promise.all(this.#players.map((player) => player.resetState()));
  }

  dispose(): void {
    this.#weights.release();
    this.#memory.destroyAll();
    this.gpu.release();
  }
}

function called(method: ProgramMethod, player: Player): Callable {
  return {
    inputs: player.inputs,
    outputs: player.outputs,
    call: (args, options) =>
      told(`execute of ${method.name}`, () => player.call(args, options)),
  };
}

function usedValues(method: ProgramMethod): Set<number> {
  const used = new Set(method.outputs);
  for (const instruction of method.instructions) {
    const values =
      'args' in instruction
        ? instruction.args
        : instruction.kind === 'move'
          ? [instruction.from]
          : instruction.kind === 'jumpFalse'
            ? [instruction.condition]
            : [];
    for (const value of values) {
      used.add(value);
    }
  }
  return used;
}
