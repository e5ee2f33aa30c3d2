/** The numbers of plans that depend on live shapes, as in csrc/player/size_code.cpp. */

import { WebGPUError } from '../errors';
import { MAX_NUMBER } from '../file/check_plans';
import {
  type Instruction,
  Operator,
  type PlanPort,
  type PlanProfile,
  type PlanSymbol,
  type Plans,
  type PlanVariant,
} from '../file/plans';

/** An input of a call: a tensor's extents, or an int. */
export interface LiveInput {
  isInt: boolean;
  /** Of an int. */
  value: number;
  /** Of a tensor. */
  shape: number[];
}

function refuse(text: string): never {
  throw new WebGPUError('InvalidArgument', text);
}

function shown(shape: number[]): string {
  return `[${shape.join(', ')}]`;
}

/** All digits, where JavaScript would round or use an exponent. */
function digits(number: number): string {
  return Number.isInteger(number) ? BigInt(number).toString() : String(number);
}

/** As Python prints a list of tuples and ints. */
function listed(inputs: LiveInput[]): string {
  const texts = inputs.map(({ isInt, value, shape }) =>
    isInt ? digits(value) : `(${shape.join(', ')}${shape.length === 1 ? ',)' : ')'}`,
  );
  return `[${texts.join(', ')}]`;
}

/** The beginning of a text: at most `most` bytes of UTF-8, with no half character. */
function cut(text: string, most: number): string {
  const bytes = new TextEncoder().encode(text);
  let end = most;
  while (end > 0 && end < bytes.length && ((bytes[end] ?? 0) & 0xc0) === 0x80) {
    end--;
  }
  return new TextDecoder().decode(bytes.subarray(0, end));
}

/** Exact, where a quotient of floats may be rounded up. */
function floorDivide(a: number, b: number): number {
  if (b === 0) {
    return 0;
  }
  const rest = a % b;
  const quotient = (a - rest) / b;
  return rest !== 0 && a < 0 !== b < 0 ? quotient - 1 : quotient;
}

// A sum or product that is not below 2 ** 53 may have been rounded down to it.
function isExact(operator: Operator, a: number, b: number): boolean {
  const left = BigInt(a);
  const right = BigInt(b);
  const value =
    operator === Operator.Add
      ? left + right
      : operator === Operator.Subtract
        ? left - right
        : left * right;
  return value >= -MAX_NUMBER && value <= MAX_NUMBER;
}

/** NaN if the result has more than 53 bits. */
function compute(operator: Operator, a: number, b: number): number {
  switch (operator) {
    case Operator.Add:
    case Operator.Subtract:
    case Operator.Multiply: {
      const value =
        operator === Operator.Add
          ? a + b
          : operator === Operator.Subtract
            ? a - b
            : a * b;
      const isSmall = Math.abs(value) < MAX_NUMBER || isExact(operator, a, b);
      return isSmall ? value : Number.NaN;
    }
    case Operator.Divide:
      return floorDivide(a, b);
    case Operator.Modulo: {
      const rest = b === 0 ? a : a % b;
      return b !== 0 && rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest;
    }
    case Operator.CeilDivide:
      return -floorDivide(-a, b);
    case Operator.Less:
      return a < b ? 1 : 0;
    case Operator.Equal:
      return a === b ? 1 : 0;
  }
}

function portOf(plans: Plans, variant: PlanVariant, input: number): PlanPort {
  return plans.ports[variant.inputs[input]!]!;
}

function checkRanks(plans: Plans, variant: PlanVariant, inputs: LiveInput[]): void {
  if (inputs.length !== variant.inputs.length) {
    refuse(`inputs must be ${variant.inputs.length}, got ${inputs.length}`);
  }
  for (const [i, input] of inputs.entries()) {
    const port = portOf(plans, variant, i);
    if (input.isInt !== port.isInt) {
      const [wanted, got] = port.isInt
        ? ['an int', 'a tensor']
        : ['a tensor', 'an int'];
      refuse(`${port.name}: input must be ${wanted}, got ${got}`);
    }
    if (!input.isInt && input.shape.length !== port.shape.length) {
      refuse(
        `input ${port.name} must have ${port.shape.length} dimensions, ` +
          `got ${shown(input.shape)}`,
      );
    }
  }
}

function refuseShape(port: PlanPort, input: LiveInput): never {
  refuse(
    `input ${port.name} must have shape ${cut(port.wanted, 500)}, ` +
      `got ${shown(input.shape)}`,
  );
}

function symbolValue(symbol: PlanSymbol, port: PlanPort, inputs: LiveInput[]): number {
  const input = inputs[symbol.input]!;
  const live = input.isInt ? input.value : input.shape[symbol.dim]!;
  if (!(Math.abs(live) <= MAX_NUMBER)) {
    refuse(`size ${symbol.name} must fit 53 bits, got ${digits(live)}`);
  }
  const rest = BigInt(live) - BigInt(symbol.offset);
  const divisor = BigInt(symbol.divisor);
  if (rest % divisor !== 0n) {
    if (!input.isInt) {
      refuseShape(port, input);
    }
    refuse(
      `size ${symbol.name} must be a whole number, ` +
        `got (${live} - ${symbol.offset}) / ${symbol.divisor}`,
    );
  }
  const value = rest / divisor;
  if (value < symbol.low || value > symbol.high) {
    refuse(
      `size ${symbol.name} must be in [${symbol.low}, ${symbol.high}], got ${value}` +
        ` (inputs ${listed(inputs)})`,
    );
  }
  return Number(value);
}

function checkShapes(
  plans: Plans,
  variant: PlanVariant,
  inputs: LiveInput[],
  registers: number[],
): void {
  for (const [i, input] of inputs.entries()) {
    const port = portOf(plans, variant, i);
    for (const [dim, register] of port.shape.entries()) {
      if (input.shape[dim] !== registers[register]) {
        refuseShape(port, input);
      }
    }
  }
}

function run(code: Instruction[], registers: number[], inputs: LiveInput[]): void {
  for (const { operator, left, right } of code) {
    const value = compute(operator, registers[left]!, registers[right]!);
    if (Number.isNaN(value)) {
      refuse(
        'sizes must make numbers of at most 53 bits, got more ' +
          `(inputs ${listed(inputs)})`,
      );
    }
    registers.push(value + 0); // never -0
  }
}

/**
 * All registers, for inputs as `variant` describes them: those of any variant of a
 * profile are alike. Throws if the inputs are not what was exported.
 */
export function liveRegisters(
  plans: Plans,
  variant: PlanVariant,
  inputs: LiveInput[],
): number[] {
  checkRanks(plans, variant, inputs);
  const registers: number[] = [];
  for (const symbol of plans.symbols) {
    const port = portOf(plans, variant, symbol.input);
    registers.push(symbolValue(symbol, port, inputs));
  }
  for (const literal of plans.literals) {
    registers.push(literal);
  }
  run(plans.code, registers, inputs);
  checkShapes(plans, variant, inputs, registers);
  return registers;
}

/** The first variant whose guards hold; throws if none does. */
export function chooseVariant(
  plans: Plans,
  profile: PlanProfile,
  registers: number[],
): PlanVariant {
  for (const variant of profile.variants) {
    const holds = variant.guards.every(({ register, low, high }) => {
      const value = registers[register]!;
      return value >= low && value <= high;
    });
    if (holds) {
      return variant;
    }
  }
  const got = plans.symbols.map(({ name }, i) => `${name}=${registers[i]}`);
  const exported = plans.symbols.map(
    ({ name, low, high }) => `${name} in [${low}, ${high}]`,
  );
  refuse(`no plan for sizes ${got.join(', ')}: exported were ${exported.join(', ')}`);
}

/** What registers are at the smallest and at the largest sizes. */
export function boundsOf(
  plans: Plans,
): (register: number) => number | { name: string; min: number; max: number; step: 1 } {
  const [least, most] = (['low', 'high'] as const).map((end) => {
    const registers = [...plans.symbols.map((each) => each[end]), ...plans.literals];
    for (const { operator, left, right } of plans.code) {
      registers.push(compute(operator, registers[left]!, registers[right]!));
    }
    return registers;
  });
  return (register) => {
    const [a = 0, b = 0] = [least?.[register], most?.[register]];
    const name = plans.symbols[register]?.name ?? 'size';
    return a === b ? a : { name, min: Math.min(a, b), max: Math.max(a, b), step: 1 };
  };
}
