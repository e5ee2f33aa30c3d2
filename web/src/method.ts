/**
 * Runs a method of a program: its delegates' calls, and between them integers of shapes
 * and positions, moves and jumps.
 */

import { WebGPUError } from './errors';
import { fromMemoryOrder, isRowMajor, toMemoryOrder } from './file/dim_order';
import type {
  ProgramInstruction,
  ProgramMethod,
  TensorValue,
  Value,
} from './file/program';
import {
  kindOf,
  type RunValue,
  SCALAR_KERNELS,
  type ScalarKernel,
} from './scalar_kernels';
import { Tensor, typeName } from './tensor';
import { turn } from './turn';

/** What can be given to a call. */
export type Input = Tensor | number | bigint | boolean;
/** What a call gives. */
export type Output = Tensor | number | boolean;

/** What a run is asked beside its inputs. */
export interface RunOptions {
  signal?: AbortSignal | undefined;
}

/** A delegate as a method calls it. */
export interface Callable {
  readonly inputs: number;
  readonly outputs: number;
  /** The results are new tensors, which the caller disposes of. */
  call(args: RunValue[], options: RunOptions): Promise<RunValue[]>;
}

const HOW =
  'export all of the model with WebGPUPartitioner(portable=True); its report names ' +
  'the ops that stay behind and why';

// A program may jump back: what the page wants goes first now and then.
const STEPS_PER_TURN = 1000;

function scalarKernel(method: ProgramMethod, operator: number): ScalarKernel {
  const name = method.operators[operator];
  const kernel = name === undefined ? undefined : SCALAR_KERNELS.get(name);
  if (kernel === undefined) {
    throw new WebGPUError(
      'NotSupported',
      `${method.name}: all ops must run on the GPU in a browser, got ${name}; ${HOW}`,
    );
  }
  return kernel;
}

/** Throws if the method has an op or a delegate that a browser cannot run. */
export function checkMethod(method: ProgramMethod, backend: string): void {
  for (const instruction of method.instructions) {
    if (instruction.kind === 'kernel') {
      scalarKernel(method, instruction.operator);
    }
  }
  for (const { id } of method.delegates) {
    if (id !== backend) {
      throw new WebGPUError(
        'NotSupported',
        `${method.name}: all delegates must be of ${backend} in a browser, got ${id}; ${HOW}`,
      );
    }
  }
}

function shown(dims: readonly number[]): string {
  return `[${dims.join(', ')}]`;
}

export class Method {
  readonly #method: ProgramMethod;
  readonly #delegates: readonly Callable[];
  readonly #constants: ReadonlyMap<number, Tensor>;
  // Inputs whose shapes no delegate looks at.
  readonly #unseen: ReadonlySet<number>;

  /** @param constants tensors by the numbers of their values */
  constructor(
    method: ProgramMethod,
    delegates: readonly Callable[],
    constants: ReadonlyMap<number, Tensor>,
  ) {
    this.#method = method;
    this.#delegates = delegates;
    this.#constants = constants;
    const seen = new Set<number>();
    for (const instruction of method.instructions) {
      if (instruction.kind === 'delegate') {
        instruction.args.forEach((value) => {
          seen.add(value);
        });
      }
    }
    this.#unseen = new Set(method.inputs.filter((value) => !seen.has(value)));
  }

  get name(): string {
    return this.#method.name;
  }

  async run(inputs: readonly Input[], options: RunOptions = {}): Promise<Output[]> {
    const made = new Set<Tensor>();
    try {
      const values = await this.#start(inputs);
      await this.#play(values, made, options);
      return await this.#finish(values, made);
    } finally {
      for (const tensor of made) {
        tensor.dispose();
      }
    }
  }

  async #start(inputs: readonly Input[]): Promise<RunValue[]> {
    const { name, inputs: wanted } = this.#method;
    if (!Array.isArray(inputs) || inputs.length !== wanted.length) {
      const got = Array.isArray(inputs) ? inputs.length : typeof inputs;
      throw new WebGPUError(
        'InvalidArgument',
        `${name}: inputs must be ${wanted.length}, got ${got}`,
      );
    }
    const values = this.#method.values.map((value, number) =>
      this.#initial(value, number),
    );
    for (const [index, number] of wanted.entries()) {
      const value = this.#input(index, number, inputs[index]);
      values[number] = value;
      const order = this.#orderOf(number);
      if (value.kind === 'tensor' && order !== undefined) {
        const { type, dims } = value.tensor;
        const data = toMemoryOrder(
          await value.tensor.data({ keep: true }),
          dims,
          order,
        );
        values[number] = { kind: 'tensor', tensor: new Tensor(type, data, dims) };
      }
    }
    return values;
  }

  // The order of a tensor's memory, unless it is that of its shape.
  #orderOf(number: number): readonly number[] | undefined {
    const { dimOrder } = this.#method.values[number] as Partial<TensorValue>;
    return dimOrder === undefined || isRowMajor(dimOrder) ? undefined : dimOrder;
  }

  #initial(value: Value, number: number): RunValue {
    switch (value.kind) {
      case 'int':
      case 'bool':
      case 'double':
      case 'null':
        return value;
      case 'tensor': {
        const constant = this.#constants.get(number);
        return constant === undefined
          ? { kind: 'null' }
          : { kind: 'tensor', tensor: constant };
      }
      case 'ints':
        return { kind: 'ints', items: value.items };
      default:
        return { kind: 'other', what: value.kind };
    }
  }

  #input(index: number, number: number, given: Input | undefined): RunValue {
    const wanted = this.#method.values[number];
    const where = `${this.name}: input ${index}`;
    const refuse = (what: string, got: string): never => {
      throw new WebGPUError('InvalidArgument', `${where} must be ${what}, got ${got}`);
    };
    const got = given instanceof Tensor ? 'a tensor' : `${typeof given} ${given}`;
    switch (wanted?.kind) {
      case 'tensor': {
        if (!(given instanceof Tensor)) {
          return refuse('a tensor', got);
        }
        const type = typeName(wanted.scalarType);
        const most = wanted.isDynamic ? 'at most ' : '';
        if (given.type !== type) {
          return refuse(
            `a tensor of ${type} ${most}${shown(wanted.sizes)}`,
            `${given.type} ${shown(given.dims)}`,
          );
        }
        if (this.#unseen.has(number) && !fits(given.dims, wanted)) {
          return refuse(
            `${type} of shape ${most}${shown(wanted.sizes)}`,
            shown(given.dims),
          );
        }
        return { kind: 'tensor', tensor: given };
      }
      case 'int': {
        const value = typeof given === 'bigint' ? Number(given) : given;
        if (typeof value !== 'number' || !Number.isSafeInteger(value)) {
          return refuse('an int of at most 53 bits', got);
        }
        return { kind: 'int', value };
      }
      case 'double':
        return typeof given === 'number'
          ? { kind: 'double', value: given }
          : refuse('a number', got);
      case 'bool':
        return typeof given === 'boolean'
          ? { kind: 'bool', value: given }
          : refuse('a boolean', got);
      default:
        return refuse(
          'a tensor, a number or a boolean',
          `${wanted?.kind} in the program`,
        );
    }
  }

  async #play(
    values: RunValue[],
    made: Set<Tensor>,
    options: RunOptions,
  ): Promise<void> {
    const { instructions } = this.#method;
    let at = 0;
    for (let count = 1; at < instructions.length; count++) {
      if (count % STEPS_PER_TURN === 0) {
        await turn();
      }
      options.signal?.throwIfAborted();
      const instruction = instructions[at] as ProgramInstruction;
      at++;
      switch (instruction.kind) {
        case 'delegate':
          await this.#callDelegate(instruction, values, made, options);
          break;
        case 'kernel':
          await this.#callKernel(instruction, values, made);
          break;
        case 'move':
          values[instruction.to] = this.#value(values, instruction.from);
          break;
        case 'jumpFalse':
          if (!(await isTrue(this.#value(values, instruction.condition)))) {
            at = instruction.destination;
          }
          break;
        case 'free':
          break; // memory that ExecuTorch would have planned
      }
    }
  }

  #value(values: RunValue[], number: number): RunValue {
    return values[number] ?? { kind: 'null' };
  }

  async #callDelegate(
    instruction: Extract<ProgramInstruction, { kind: 'delegate' }>,
    values: RunValue[],
    made: Set<Tensor>,
    options: RunOptions,
  ): Promise<void> {
    const delegate = this.#delegates[instruction.delegate];
    const { args } = instruction;
    if (delegate === undefined || args.length !== delegate.inputs + delegate.outputs) {
      throw new WebGPUError(
        'InvalidProgram',
        `delegate must have ${delegate?.inputs} inputs and ${delegate?.outputs} outputs, ` +
          `got ${args.length} arguments`,
      );
    }
    const given = args
      .slice(0, delegate.inputs)
      .map((each) => this.#value(values, each));
    const results = await delegate.call(given, options);
    results.forEach((result, index) => {
      values[args[delegate.inputs + index] as number] = result;
      if (result.kind === 'tensor') {
        made.add(result.tensor);
      }
    });
  }

  async #callKernel(
    instruction: Extract<ProgramInstruction, { kind: 'kernel' }>,
    values: RunValue[],
    made: Set<Tensor>,
  ): Promise<void> {
    const kernel = scalarKernel(this.#method, instruction.operator);
    const name = this.#method.operators[instruction.operator];
    const target = instruction.args[kernel.inputs];
    if (target === undefined) {
      throw new WebGPUError(
        'InvalidProgram',
        `${this.name}: ${name} must have ${kernel.inputs + 1} arguments, got ` +
          `${instruction.args.length}`,
      );
    }
    const args = instruction.args.slice(0, kernel.inputs).map((number) => {
      const value = this.#value(values, number);
      return value.kind === 'ints'
        ? { ...value, items: this.#ints(values, value) }
        : value;
    });
    try {
      const result = await kernel.run(args);
      values[target] = result;
      if (result.kind === 'tensor') {
        made.add(result.tensor);
      }
    } catch (error) {
      if (error instanceof WebGPUError) {
        throw new WebGPUError(error.code, `${this.name}: ${name}: ${error.message}`, {
          cause: error,
        });
      }
      throw error;
    }
  }

  // A list holds the numbers of its values, which may have been computed.
  #ints(values: RunValue[], list: { items: number[] }): number[] {
    return list.items.map((number) => {
      const value = this.#value(values, number);
      if (value.kind !== 'int') {
        throw new WebGPUError(
          'InvalidProgram',
          `${this.name}: a list must have ints, got ${kindOf(value)}`,
        );
      }
      return value.value;
    });
  }

  // Each result is a tensor of its own: that of an input or a constant is another
  // tensor with the same elements, and a constant's elements are copied.
  async #finish(values: RunValue[], made: Set<Tensor>): Promise<Output[]> {
    const results: Output[] = [];
    try {
      for (const number of this.#method.outputs) {
        results.push(await this.#result(this.#value(values, number), number, made));
      }
      return results;
    } catch (error) {
      for (const result of results) {
        if (result instanceof Tensor) {
          result.dispose();
        }
      }
      throw error;
    }
  }

  async #result(value: RunValue, number: number, made: Set<Tensor>): Promise<Output> {
    switch (value.kind) {
      case 'tensor': {
        const { tensor } = value;
        const { type, dims, host } = tensor;
        const order = this.#orderOf(number);
        if (order !== undefined) {
          const data = await tensor.data({ keep: true });
          return new Tensor(type, fromMemoryOrder(data, dims, order), dims);
        }
        if (made.delete(tensor)) {
          return tensor;
        }
        return host === undefined
          ? tensor.reshaped(dims)
          : new Tensor(type, host.slice(), dims);
      }
      case 'int':
      case 'double':
      case 'bool':
        return value.value;
      default:
        throw new WebGPUError(
          'NotSupported',
          `${this.name}: a result must be a tensor or a number, got ${kindOf(value)}`,
        );
    }
  }
}

function fits(
  dims: readonly number[],
  wanted: { sizes: number[]; isDynamic: boolean },
): boolean {
  return (
    dims.length === wanted.sizes.length &&
    wanted.sizes.every((most, dim) => {
      const extent = dims[dim] ?? -1;
      return wanted.isDynamic ? extent <= most : extent === most;
    })
  );
}

async function isTrue(value: RunValue): Promise<boolean> {
  if (value.kind === 'bool') {
    return value.value;
  }
  if (value.kind === 'tensor' && value.tensor.type === 'bool') {
    const data = await value.tensor.data({ keep: true });
    return data.every((element: number | bigint) => element !== 0);
  }
  throw new WebGPUError(
    'InvalidProgram',
    `a condition must be a bool, got ${kindOf(value)}`,
  );
}
