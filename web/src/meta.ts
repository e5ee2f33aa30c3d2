/** What a method takes and gives, as a caller wants to know it. */

import type { Plans } from './file/plans';
import type { ProgramMethod } from './file/program';
import { boundsOf } from './player/size_code';
import { type TensorType, typeName } from './tensor';

/** A size that may vary from call to call. */
export interface DynamicSize {
  name: string;
  min: number;
  max: number;
  /** Sizes are `min` and so many more, again and again. */
  step: number;
}

/** An input or an output. */
export type PortMeta =
  | {
      kind: 'tensor';
      /** Undefined for a type that no tensor can have here. */
      type: TensorType | undefined;
      dims: (number | DynamicSize)[];
    }
  | { kind: 'int'; min?: number; max?: number }
  | { kind: 'double' | 'bool' | 'other' };

export interface MethodMeta {
  name: string;
  inputs: PortMeta[];
  outputs: PortMeta[];
}

type Dims = (number | DynamicSize)[];

/** What delegates say of a method's values. */
class Found {
  readonly dims = new Map<number, Dims>();
  readonly ints = new Map<number, { min: number; max: number }>();

  constructor(method: ProgramMethod, plans: readonly Plans[]) {
    for (const instruction of method.instructions) {
      const own =
        instruction.kind === 'delegate' ? plans[instruction.delegate] : undefined;
      if (instruction.kind === 'delegate' && own !== undefined) {
        this.#add(own, instruction.args);
      }
    }
  }

  #add(plans: Plans, args: readonly number[]): void {
    const variant = plans.profiles[0]?.variants[0];
    const bounds = boundsOf(plans);
    const ports = [...(variant?.inputs ?? []), ...(variant?.outputs ?? [])];
    ports.forEach((number, i) => {
      const port = plans.ports[number];
      const value = args[i];
      if (port === undefined || value === undefined || this.dims.has(value)) {
        return;
      }
      if (!port.isInt) {
        this.dims.set(
          value,
          port.shape.map((register) => bounds(register)),
        );
      }
    });
    for (const symbol of plans.symbols) {
      this.#addSymbol(symbol, args[symbol.input]);
    }
  }

  // What is read from an input varies by as much as a size is made of it.
  #addSymbol(symbol: Plans['symbols'][number], value: number | undefined): void {
    const { name, dim, divisor, offset } = symbol;
    const min = symbol.low * divisor + offset;
    const max = symbol.high * divisor + offset;
    if (value === undefined) {
      return;
    }
    const dims = this.dims.get(value);
    if (dim === -1) {
      this.ints.set(value, { min, max });
    } else if (dims !== undefined && min < max) {
      dims[dim] = { name, min, max, step: divisor };
    }
  }
}

/** @param plans - Of the method's delegates, in their order. */
export function metaOf(method: ProgramMethod, plans: readonly Plans[]): MethodMeta {
  const found = new Found(method, plans);
  const port = (number: number): PortMeta => {
    const value = method.values[number];
    switch (value?.kind) {
      case 'tensor': {
        const sizes: Dims = value.sizes.map((max, dim) =>
          value.isDynamic ? { name: `size ${dim}`, min: 0, max, step: 1 } : max,
        );
        const dims = found.dims.get(number) ?? sizes;
        return { kind: 'tensor', type: typeName(value.scalarType), dims };
      }
      case 'int':
        return { kind: 'int', ...found.ints.get(number) };
      case 'double':
      case 'bool':
        return { kind: value.kind };
      default:
        return { kind: 'other' };
    }
  };
  return {
    name: method.name,
    inputs: method.inputs.map(port),
    outputs: method.outputs.map(port),
  };
}
