/**
 * The kernels that are not a delegate's: ExecuTorch's primitive ops on sizes, positions
 * and conditions, with its rules for ints, doubles and bools.
 *
 * An int is a number of at most 53 bits; a larger one is refused where it is made.
 */

import { WebGPUError } from './errors';
import { countOf, type Tensor } from './tensor';

/** A value while a method runs. */
export type RunValue =
  | { kind: 'null' }
  | { kind: 'int'; value: number }
  | { kind: 'double'; value: number }
  | { kind: 'bool'; value: boolean }
  | { kind: 'tensor'; tensor: Tensor }
  | { kind: 'ints'; items: number[] }
  | { kind: 'other'; what: string };

export interface ScalarKernel {
  /** The arguments before the one that it writes. */
  inputs: number;
  run(args: RunValue[]): RunValue | Promise<RunValue>;
}

type Number_ = Extract<RunValue, { kind: 'int' | 'double' }>;

function refuse(text: string): never {
  throw new WebGPUError('InvalidArgument', text);
}

function int(value: number): RunValue {
  if (!Number.isSafeInteger(value)) {
    refuse(`an int must fit 53 bits, got ${value}`);
  }
  return { kind: 'int', value: value === 0 ? 0 : value };
}

function double(value: number): RunValue {
  return { kind: 'double', value };
}

function bool(value: boolean): RunValue {
  return { kind: 'bool', value };
}

function asNumber(value: RunValue | undefined): Number_ {
  if (value?.kind !== 'int' && value?.kind !== 'double') {
    refuse(`a value must be a number, got ${kindOf(value)}`);
  }
  return value;
}

function asTensor(value: RunValue | undefined): Tensor {
  if (value?.kind !== 'tensor') {
    refuse(`a value must be a tensor, got ${kindOf(value)}`);
  }
  return value.tensor;
}

function asInt(value: RunValue | undefined): number {
  if (value?.kind !== 'int') {
    refuse(`a value must be an int, got ${kindOf(value)}`);
  }
  return value.value;
}

function asBool(value: RunValue | undefined): boolean {
  if (value?.kind !== 'bool') {
    refuse(`a value must be a bool, got ${kindOf(value)}`);
  }
  return value.value;
}

/** What a value is, for messages. */
export function kindOf(value: RunValue | undefined): string {
  const kinds = {
    null: 'nothing',
    int: 'an int',
    double: 'a double',
    bool: 'a bool',
    tensor: 'a tensor',
    ints: 'a list',
    other: 'neither',
  };
  return value === undefined ? 'nothing' : kinds[value.kind];
}

type Binary = (a: number, b: number) => number;

/** Of two ints an int, else a double. */
function algebra(ofInts: Binary, ofDoubles: Binary = ofInts): ScalarKernel {
  return {
    inputs: 2,
    run([left, right]) {
      const [a, b] = [asNumber(left), asNumber(right)];
      return a.kind === 'int' && b.kind === 'int'
        ? int(ofInts(a.value, b.value))
        : double(ofDoubles(a.value, b.value));
    },
  };
}

function comparison(holds: (a: number, b: number) => boolean): ScalarKernel {
  return {
    inputs: 2,
    run([left, right]) {
      if (left?.kind === 'bool' && right?.kind === 'bool') {
        return bool(holds(Number(left.value), Number(right.value)));
      }
      return bool(holds(asNumber(left).value, asNumber(right).value));
    },
  };
}

function rounding(round: (value: number) => number): ScalarKernel {
  return { inputs: 1, run: ([value]) => int(round(asNumber(value).value)) };
}

function divisible(divide: Binary): Binary {
  return (a, b) =>
    b === 0 ? refuse('an int must not be divided by 0, got 0') : divide(a, b);
}

// As Python rounds a quotient of doubles down, so that a == (a // b) * b + a % b.
function floorDivide(a: number, b: number): number {
  if (b === 0) {
    return a < 0 || Object.is(a, -0) ? -Infinity : Infinity;
  }
  const rest = a % b;
  const quotient = (a - rest) / b;
  return rest !== 0 && rest < 0 !== b < 0 ? quotient - 1 : quotient;
}

function roundHalfEven(value: number): number {
  const near = Math.round(value);
  return near - value === 0.5 && near % 2 !== 0 ? near - 1 : near;
}

const symSize: ScalarKernel = {
  inputs: 2,
  run([self, dim]) {
    const dims = asTensor(self).dims;
    const at = asInt(dim);
    const extent = dims[at < 0 ? at + dims.length : at];
    return extent === undefined
      ? refuse(`a dim must be one of ${dims.length}, got ${at}`)
      : int(extent);
  },
};

// The one op that waits for the GPU, if a delegate made the tensor.
const localScalar: ScalarKernel = {
  inputs: 1,
  async run([self]) {
    const tensor = asTensor(self);
    if (tensor.size !== 1) {
      refuse(`a tensor must have 1 element to be a number, got ${tensor.size}`);
    }
    const value = (await tensor.data({ keep: true }))[0] ?? 0;
    if (tensor.type === 'bool') {
      return bool(value !== 0);
    }
    if (tensor.type === 'float16' || tensor.type === 'bfloat16') {
      refuse(`a number must not be read from ${tensor.type}; convert it to float32`);
    }
    return tensor.type === 'float32' ? double(Number(value)) : int(Number(value));
  },
};

// A shape with at most one -1, which is what is left.
const view: ScalarKernel = {
  inputs: 2,
  run([self, size]) {
    const tensor = asTensor(self);
    if (size?.kind !== 'ints') {
      refuse(`a shape must be a list of ints, got ${kindOf(size)}`);
    }
    const known = countOf(size.items.filter((extent) => extent !== -1));
    const dims = size.items.map((extent) =>
      extent === -1 ? (known === 0 ? 0 : tensor.size / known) : extent,
    );
    if (countOf(dims) !== tensor.size) {
      refuse(
        `a view of ${tensor.size} elements must have as many, got [${size.items.join(', ')}]`,
      );
    }
    return { kind: 'tensor', tensor: tensor.reshaped(dims) };
  },
};

/** By name, as programs name them. */
export const SCALAR_KERNELS: ReadonlyMap<string, ScalarKernel> = new Map<
  string,
  ScalarKernel
>([
  ['aten::sym_size.int', symSize],
  ['aten::sym_numel', { inputs: 1, run: ([self]) => int(asTensor(self).size) }],
  ['aten::_local_scalar_dense', localScalar],
  ['executorch_prim::et_view.default', view],
  ['executorch_prim::add.Scalar', algebra((a, b) => a + b)],
  ['executorch_prim::sub.Scalar', algebra((a, b) => a - b)],
  ['executorch_prim::mul.Scalar', algebra((a, b) => a * b)],
  ['executorch_prim::floordiv.Scalar', algebra(divisible(floorDivide), floorDivide)],
  ['executorch_prim::floordiv.int', algebra(divisible((a, b) => Math.trunc(a / b)))],
  [
    'executorch_prim::truediv.Scalar',
    {
      inputs: 2,
      run: ([a, b]) => double(asNumber(a).value / asNumber(b).value),
    },
  ],
  // With the sign of the left, as ExecuTorch has it.
  [
    'executorch_prim::mod.Scalar',
    algebra(
      divisible((a, b) => a % b),
      (a, b) => a % b,
    ),
  ],
  ['executorch_prim::mod.int', algebra(divisible((a, b) => a % b))],
  ['executorch_prim::sym_max.Scalar', algebra(Math.max)],
  ['executorch_prim::sym_min.Scalar', algebra(Math.min)],
  ['executorch_prim::eq.Scalar', comparison((a, b) => a === b)],
  ['executorch_prim::ne.Scalar', comparison((a, b) => a !== b)],
  ['executorch_prim::gt.Scalar', comparison((a, b) => a > b)],
  ['executorch_prim::ge.Scalar', comparison((a, b) => a >= b)],
  ['executorch_prim::lt.Scalar', comparison((a, b) => a < b)],
  ['executorch_prim::le.Scalar', comparison((a, b) => a <= b)],
  [
    'executorch_prim::neg.Scalar',
    {
      inputs: 1,
      run([value]) {
        const a = asNumber(value);
        return a.kind === 'int' ? int(-a.value) : double(-a.value);
      },
    },
  ],
  ['executorch_prim::ceil.Scalar', rounding(Math.ceil)],
  ['executorch_prim::trunc.Scalar', rounding(Math.trunc)],
  ['executorch_prim::round.Scalar', rounding(roundHalfEven)],
  ['executorch_prim::sym_int.Scalar', rounding(Math.trunc)],
  [
    'executorch_prim::sym_float.Scalar',
    { inputs: 1, run: ([value]) => double(asNumber(value).value) },
  ],
  [
    'executorch_prim::sym_not.Scalar',
    { inputs: 1, run: ([value]) => bool(!asBool(value)) },
  ],
  [
    'executorch_prim::sym_ite.Scalar',
    {
      inputs: 3,
      run: ([condition, a, b]) => (asBool(condition) ? asNumber(a) : asNumber(b)),
    },
  ],
]);
