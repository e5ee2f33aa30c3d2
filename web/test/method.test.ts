import { describe, expect, it } from 'vitest';
import { fromMemoryOrder, toMemoryOrder } from '../src/file/dim_order';
import type { ProgramInstruction, ProgramMethod, Value } from '../src/file/program';
import { metaOf } from '../src/meta';
import { type Callable, checkMethod, type Input, Method } from '../src/method';
import { numbersOf } from '../src/numbers';
import { Tensor } from '../src/tensor';

const int = (value: number): Value => ({ kind: 'int', value });
const tensor = (sizes: number[], order?: number[]): Value => ({
  ...{ kind: 'tensor', scalarType: 6, sizes, isDynamic: false, data: undefined },
  dimOrder: order ?? sizes.map((_, dim) => dim),
});

function program(
  values: Value[],
  inputs: number[],
  outputs: number[],
  instructions: ProgramInstruction[],
  operators: string[] = [],
): ProgramMethod {
  const delegates = [{ id: 'WebGPUBackend', data: { start: 0, size: 0 } }];
  return {
    name: 'forward',
    ...{ values, inputs, outputs, instructions, operators, delegates },
  };
}

/** Gives the tensor that it is given, and remembers its elements. */
class Same implements Callable {
  readonly inputs = 1;
  readonly outputs = 1;
  readonly seen: number[][] = [];

  async call(args: Parameters<Callable['call']>[0]) {
    const [value] = args;
    if (value?.kind !== 'tensor') {
      throw new Error('not a tensor');
    }
    const data = await value.tensor.data({ keep: true });
    this.seen.push(Array.from(data, Number));
    const { type, dims } = value.tensor;
    return [{ kind: 'tensor' as const, tensor: new Tensor(type, data.slice(), dims) }];
  }
}

/** The result of one op on ints, of which there are up to three. */
async function computed(operator: string, ...given: Input[]): Promise<unknown> {
  const values = [...given.map((value) => scalar(value)), int(0)];
  const inputs = given.map((_, i) => i);
  const args = [...inputs, given.length];
  const method = program(
    values,
    inputs,
    [given.length],
    [{ kind: 'kernel', operator: 0, args }],
    [operator],
  );
  return (await new Method(method, [], new Map()).run(given))[0];
}

function scalar(value: Input): Value {
  if (typeof value === 'boolean') {
    return { kind: 'bool', value };
  }
  return Number.isInteger(value) ? int(0) : { kind: 'double', value: 0 };
}

describe('ops on sizes', () => {
  it.each([
    ['executorch_prim::add.Scalar', [5, 3], 8],
    ['executorch_prim::sub.Scalar', [5, 8], -3],
    ['executorch_prim::mul.Scalar', [5, 1.5], 7.5],
    ['executorch_prim::floordiv.Scalar', [-7, 2], -4],
    ['executorch_prim::floordiv.int', [-7, 2], -3],
    ['executorch_prim::mod.Scalar', [-7, 3], -1],
    ['executorch_prim::truediv.Scalar', [7, 2], 3.5],
    ['executorch_prim::round.Scalar', [2.5], 2],
    ['executorch_prim::ceil.Scalar', [2.1], 3],
    ['executorch_prim::sym_max.Scalar', [2, 9], 9],
    ['executorch_prim::le.Scalar', [2, 2], true],
    ['executorch_prim::sym_not.Scalar', [true], false],
    ['executorch_prim::sym_ite.Scalar', [false, 1, 2], 2],
  ] as const)('%s of %j is %j', async (operator, given, wanted) => {
    expect(await computed(operator, ...given)).toBe(wanted);
  });

  it('say what cannot be computed', async () => {
    await expect(computed('executorch_prim::floordiv.Scalar', 1, 0)).rejects.toThrow(
      'forward: executorch_prim::floordiv.Scalar: an int must not be divided by 0, got 0',
    );
    await expect(
      computed('executorch_prim::mul.Scalar', 2 ** 40, 2 ** 40),
    ).rejects.toThrow('an int must fit 53 bits');
  });
});

describe('a method', () => {
  it('jumps and moves', async () => {
    // if value 0: value 2 = value 1
    const method = program(
      [{ kind: 'bool', value: false }, int(0), int(7)],
      [0, 1],
      [2],
      [
        { kind: 'jumpFalse', condition: 0, destination: 2 },
        { kind: 'move', from: 1, to: 2 },
      ],
    );
    const played = new Method(method, [], new Map());
    expect(await played.run([true, 5])).toEqual([5]);
    expect(await played.run([false, 5])).toEqual([7]);
  });

  it('gives delegates memory in the order of the program', async () => {
    const same = new Same();
    const order = [0, 2, 3, 1];
    const method = program(
      [tensor([1, 2, 2, 3], order), tensor([1, 2, 2, 3], order)],
      [0],
      [1],
      [{ kind: 'delegate', delegate: 0, args: [0, 1] }],
    );
    const data = Float32Array.from({ length: 12 }, (_, i) => i);
    const x = new Tensor('float32', data, [1, 2, 2, 3]);
    const [y] = await new Method(method, [same], new Map()).run([x]);
    expect(same.seen[0]).toEqual([0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11]);
    expect(await (y as Tensor).data()).toEqual(data);
  });

  it('refuses inputs that are not what it takes', async () => {
    const method = program([tensor([2]), int(0)], [0, 1], [1], []);
    const run = (...inputs: Input[]) =>
      new Method(method, [], new Map()).run(inputs).then(String, (e) => e.message);
    const x = new Tensor('float32', [1, 2], [2]);
    expect(await run(x, 3)).toBe('3');
    expect(await run(x, 3n)).toBe('3');
    expect(await run(x)).toBe('forward: inputs must be 2, got 1');
    expect(await run(x, 0.5)).toBe(
      'forward: input 1 must be an int of at most 53 bits, got number 0.5',
    );
    expect(await run(new Tensor('float32', [1], [1]), 3)).toBe(
      'forward: input 0 must be float32 of shape [2], got [1]',
    );
  });

  it('is refused with an op on the CPU, or a delegate of others', () => {
    const call: ProgramInstruction = { kind: 'kernel', operator: 0, args: [0, 0] };
    const method = program([int(0)], [], [], [call], ['aten::erf.out']);
    expect(() => checkMethod(method, 'WebGPUBackend')).toThrow(
      /^forward: all ops must run on the GPU in a browser, got aten::erf\.out; export /,
    );
    expect(() => checkMethod(program([], [], [], []), 'Another')).toThrow(
      'all delegates must be of Another in a browser, got WebGPUBackend',
    );
  });

  it('says what it takes where no delegate does', () => {
    const method = program([tensor([2, 3]), int(0)], [0, 1], [1], []);
    expect(metaOf(method, [])).toEqual({
      name: 'forward',
      inputs: [{ kind: 'tensor', type: 'float32', dims: [2, 3] }, { kind: 'int' }],
      outputs: [{ kind: 'int' }],
    });
  });
});

describe('elements', () => {
  it('go to memory and back', () => {
    const data = Int32Array.from({ length: 24 }, (_, i) => i);
    const memory = toMemoryOrder(data, [2, 3, 4], [2, 0, 1]);
    expect([...memory.slice(0, 7)]).toEqual([0, 4, 8, 12, 16, 20, 1]);
    expect(fromMemoryOrder(memory, [2, 3, 4], [2, 0, 1])).toEqual(data);
    expect(toMemoryOrder(data, [2, 3, 4], [0, 1, 2])).toBe(data);
  });

  it('are numbers, whatever their type', () => {
    expect([...numbersTo('float16', Uint16Array.of(0x3c00, 0xfc00))]).toEqual([
      1,
      Number.NEGATIVE_INFINITY,
    ]);
    expect([...numbersTo('bfloat16', Uint16Array.of(0x3f80))]).toEqual([1]);
    expect([...numbersTo('int64', BigInt64Array.of(-5n))]).toEqual([-5]);
  });

  function numbersTo(...given: Parameters<typeof numbersOf>): number[] {
    return Array.from(numbersOf(...given));
  }
});
