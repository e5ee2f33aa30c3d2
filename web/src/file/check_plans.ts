/**
 * What plans from any file must be before the first of their numbers is used, as in
 * csrc/player/check_plans.cpp: the same checks, in the same order, with the same texts.
 *
 * What depends on live shapes is compared when they are known.
 */

import { WebGPUError } from '../errors';
import { isConvertible, storageSize } from '../player/convert';
import type { Wide } from './flat';
import {
  Access,
  DType,
  Operator,
  type PlanBuffer,
  type PlanConstant,
  type PlanDispatch,
  type PlanKernel,
  type PlanPort,
  type PlanProfile,
  type PlanSymbol,
  type Plans,
  type PlanVariant,
  paramsBytes,
  type Register,
  Role,
  Storage,
} from './plans';

/** Of any register, and of every number that becomes one. */
export const MAX_NUMBER = 2 ** 53;

type Unchecked<T, Fields extends keyof T> = Omit<T, Fields> & {
  [Field in Fields]: T[Field] extends number[] ? Wide[] : Wide;
};

/** Plans as they are read, whose numbers of 64 bits may be too large to be counted. */
export type UncheckedPlans = Omit<
  Plans,
  'symbols' | 'literals' | 'buffers' | 'constants' | 'profiles'
> & {
  symbols: Unchecked<PlanSymbol, 'low' | 'high' | 'divisor' | 'offset'>[];
  literals: Wide[];
  buffers: Unchecked<PlanBuffer, 'size'>[];
  constants: Unchecked<PlanConstant, 'shape'>[];
  profiles: Unchecked<PlanProfile, 'maxBinding' | 'maxBuffer'>[];
};

const MAX_RANK = 16;
const MAX_SYMBOLS = 256;
const MAX_KERNELS = 4096;
const MAX_KERNEL_TEXT = 2 ** 20;
const MAX_TEXT = 2 ** 26; // of all: lines may be the same ones
const MAX_BINDINGS = 64;
const MAX_BUFFERS = 2 ** 16;
const MAX_PROFILES = 64;
const MAX_VARIANTS = 1024;
const MAX_PORTS = 4096; // inputs of a variant, and outputs
const MAX_LIMITS = 64; // of a port
const MAX_DISPATCHES = 32768;
const MAX_PARAMS = 4096; // words: 16 KiB, which any adapter binds
const MAX_ALL_PARAMS = 2 ** 24; // bytes of a variant's
const MAX_LENGTH = 2 ** 31;
const MAX_LIMIT = 2 ** 40; // of a profile
const MAX_NAME = 1000;
const MAX_WANTED = 2 ** 16;
// Of a constant, which all that have the same one share.
const CONSTANT_ALIGN = 16;
const STATUS_BYTES = 16;

function refuse(what: string, requirement: string, got: Wide | string): never {
  throw new WebGPUError(
    'DelegateInvalidCompatibility',
    `plans: ${what} must ${requirement}, got ${got}`,
  );
}

function requireIndex(what: string, index: Wide, count: number): void {
  if (index >= count) {
    refuse(what, `be less than ${count}`, index);
  }
}

function requireCount(what: string, count: number, least: number, most: number): void {
  if (count < least || count > most) {
    refuse(what, `be from ${least} to ${most}`, count);
  }
}

// The bytes that a text has in UTF-8.
function byteLength(text: string): number {
  let bytes = text.length;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    // Two halves of a character make four bytes together.
    const isHalf = unit >= 0xd800 && unit < 0xe000;
    bytes += unit < 0x80 ? 0 : unit < 0x800 || isHalf ? 1 : 2;
  }
  return bytes;
}

// Names come up in logs: no control character may.
function requireName(text: string, most = MAX_NAME): void {
  let isPlain = true;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    isPlain = isPlain && unit >= 0x20 && (unit < 0x7f || unit >= 0xa0);
  }
  const bytes = byteLength(text);
  if (!isPlain || bytes > most) {
    refuse(
      'a name',
      `have at most ${most} bytes and no control characters`,
      `${bytes} bytes`,
    );
  }
}

function requireType(what: string, dtype: DType, storage: Storage): void {
  requireIndex('a storage', storage, Storage.I32 + 1);
  if (!isConvertible(dtype, storage)) {
    refuse(what, 'have a type with a GPU form', `scalar type ${dtype}`);
  }
}

// Bytes of elements on the GPU; too many are an error.
function bytesOf(constant: UncheckedPlans['constants'][number]): number {
  requireCount("a constant's rank", constant.shape.length, 0, MAX_RANK);
  let count = 1;
  for (const extent of constant.shape) {
    const isMore = count !== 0 && extent > Math.floor((MAX_LENGTH - 1) / count);
    if (isMore || typeof extent === 'bigint') {
      refuse(`constant ${constant.dataKey}`, 'fit a buffer', 'more elements');
    }
    count *= extent;
  }
  return count * storageSize(constant.storage);
}

/** Throws for an index, a count, a type or a role that is none. */
export function checkPlans(plans: UncheckedPlans): asserts plans is Plans {
  const checker = new Checker(plans);
  checker.checkNumbers();
  checker.checkKernels();
  checker.checkBuffers();
  checker.checkConstants();
  for (const port of plans.ports) {
    checker.checkPort(port);
  }
  for (const dispatch of plans.dispatches) {
    checker.checkDispatch(dispatch);
  }
  requireCount('profiles', plans.profiles.length, 1, MAX_PROFILES);
  for (const profile of plans.profiles) {
    checker.checkProfile(profile);
  }
}

class Checker {
  readonly #plans: UncheckedPlans;
  readonly #registers: number;

  constructor(plans: UncheckedPlans) {
    this.#plans = plans;
    this.#registers = plans.symbols.length + plans.literals.length + plans.code.length;
  }

  #requireRegisters(indices: readonly Register[]): void {
    for (const index of indices) {
      requireIndex('a register', index, this.#registers);
    }
  }

  checkNumbers(): void {
    const { symbols, literals, code } = this.#plans;
    requireCount('symbols', symbols.length, 0, MAX_SYMBOLS);
    for (const { name, low, high, divisor, offset } of symbols) {
      requireName(name);
      if (low < -MAX_LENGTH || low > high || high >= MAX_LENGTH) {
        refuse(`size ${name}`, 'have a range within int32', `[${low}, ${high}]`);
      }
      if (
        divisor < 1 ||
        divisor >= MAX_LENGTH ||
        offset <= -MAX_LENGTH ||
        offset >= MAX_LENGTH
      ) {
        const got = `${divisor} and ${offset}`;
        refuse(`size ${name}`, 'be found by a divisor and an offset', got);
      }
    }
    for (const literal of literals) {
      if (literal < -MAX_NUMBER || literal > MAX_NUMBER) {
        refuse('a literal', 'fit 53 bits', literal);
      }
    }
    let made = symbols.length + literals.length;
    for (const { operator, left, right } of code) {
      requireIndex('an operator', operator, Operator.Equal + 1);
      requireIndex('an operand', left, made);
      requireIndex('an operand', right, made);
      made++;
    }
  }

  checkKernels(): void {
    const { kernels, lines } = this.#plans;
    requireCount('kernels', kernels.length, 0, MAX_KERNELS);
    const lengths = lines.map(byteLength);
    let total = 0;
    for (const kernel of kernels) {
      requireName(kernel.label);
      let length = 0;
      for (const line of kernel.lines) {
        requireIndex('a line', line, lines.length);
        length += lengths[line]! + 1;
        requireCount('bytes of a kernel', length, 0, MAX_KERNEL_TEXT);
      }
      total += length;
      requireCount('bytes of all kernels', total, 0, MAX_TEXT);
      checkAccess(kernel);
    }
  }

  checkBuffers(): void {
    const { buffers } = this.#plans;
    requireCount('buffers', buffers.length, 0, MAX_BUFFERS);
    for (const { role, key, size } of buffers) {
      requireIndex('a role', role, Role.Status + 1);
      requireName(key);
      if (size === 0 || size >= MAX_LENGTH || Number(size) % 4 !== 0) {
        refuse(`buffer ${key}`, 'have a size that is a multiple of 4', size);
      }
      if (role === Role.Status && size < STATUS_BYTES) {
        refuse(`buffer ${key}`, `have ${STATUS_BYTES} bytes`, size);
      }
    }
  }

  checkConstants(): void {
    const { buffers, constants } = this.#plans;
    const filled = new Set<number>();
    for (const constant of constants) {
      const what = `constant ${constant.dataKey}`;
      requireName(constant.dataKey);
      requireIndex("a constant's buffer", constant.buffer, buffers.length);
      const buffer = buffers[constant.buffer]!;
      if (buffer.role !== Role.Constant && buffer.role !== Role.State) {
        refuse(what, "be in a constant's or a state's buffer", buffer.key);
      }
      if (filled.has(constant.buffer)) {
        refuse(`buffer ${buffer.key}`, 'have one content', 'two');
      }
      filled.add(constant.buffer);
      requireType(what, constant.dtype, constant.storage);
      const bytes = bytesOf(constant);
      // Neither more nor less: all that have the same constant are given one buffer.
      const wanted = Math.max(Math.ceil(bytes / CONSTANT_ALIGN), 1) * CONSTANT_ALIGN;
      const isOther = buffer.role === Role.Constant && buffer.size !== wanted;
      if (bytes > buffer.size || isOther) {
        refuse(what, `fill its buffer of ${buffer.size} bytes`, bytes);
      }
    }
    buffers.forEach(({ role, key }, i) => {
      if (role === Role.Constant && !filled.has(i)) {
        refuse(`buffer ${key}`, 'have a content', 'none');
      }
    });
  }

  checkPort(port: PlanPort): void {
    requireName(port.name);
    requireName(port.wanted, MAX_WANTED);
    this.#requireRegisters(port.shape);
    requireCount('limits', port.limits.length, 0, MAX_LIMITS);
    for (const { label, add, count, length } of port.limits) {
      requireName(label);
      this.#requireRegisters([add, count, length]);
    }
    requireCount("a port's rank", port.shape.length, 0, port.isInt ? 0 : MAX_RANK);
    if (port.buffer < -1) {
      refuse(port.name, 'have a buffer', port.buffer);
    }
    requireIndex("a port's buffer", port.buffer, this.#plans.buffers.length);
    requireType(port.name, port.dtype, port.storage);
    // What is not an int has no value, and its number means nothing.
    if (port.isInt) {
      this.#requireRegisters([port.value]);
      if (port.dtype !== DType.Long) {
        refuse(port.name, 'be an int64', `scalar type ${port.dtype}`);
      }
    }
  }

  checkDispatch(dispatch: PlanDispatch): void {
    const { label, ranges, params, groups } = dispatch;
    const { kernels, buffers } = this.#plans;
    requireName(label);
    requireIndex("a call's number", dispatch.call, MAX_LENGTH);
    requireIndex("a dispatch's kernel", dispatch.kernel, kernels.length);
    const kernel = kernels[dispatch.kernel]!;
    const count = dispatch.buffers.length;
    const hasParams = params.length > 0;
    const bound = count + (hasParams ? 1 : 0);
    const isUniform = kernel.access.at(-1) === Access.Uniform;
    if (kernel.access.length !== bound || isUniform !== hasParams) {
      const wanted = `what kernel ${kernel.label} has, ${kernel.access.length} buffers`;
      refuse(label, `bind ${wanted}`, bound);
    }
    dispatch.buffers.forEach((index, i) => {
      requireIndex("a dispatch's buffer", index, buffers.length);
      // Constants may be those of other delegates, too.
      const { role, key } = buffers[index]!;
      const isRead = role === Role.Constant || role === Role.Input;
      if (kernel.access[i] === Access.ReadWrite && isRead) {
        refuse(label, 'write to no constant or input', key);
      }
    });
    if (ranges.length !== 0 && ranges.length !== 2 * count) {
      refuse(label, "have two numbers for each buffer's range", ranges.length);
    }
    this.#requireRegisters(ranges);
    requireCount('parameters', params.length, 0, MAX_PARAMS);
    this.#requireRegisters(params);
    requireCount('numbers of a grid', groups.length, 3, 3);
    this.#requireRegisters(groups);
  }

  checkProfile(profile: UncheckedPlans['profiles'][number]): void {
    const { name, maxBuffer, maxBinding, maxWorkgroups, offsetAlign } = profile;
    requireName(name);
    if (
      maxBuffer > MAX_LIMIT ||
      maxBinding > maxBuffer ||
      maxBinding === 0 ||
      maxWorkgroups === 0 ||
      maxWorkgroups >= MAX_LENGTH
    ) {
      const got = `${maxBuffer}, ${maxBinding} and ${maxWorkgroups}`;
      refuse(`profile ${name}`, 'have plausible limits', got);
    }
    if (offsetAlign < 4 || (offsetAlign & (offsetAlign - 1)) !== 0) {
      refuse(`profile ${name}`, 'align offsets to a power of 2 from 4 on', offsetAlign);
    }
    requireCount('variants', profile.variants.length, 1, MAX_VARIANTS);
    const first = profile.variants[0]!;
    const used = new Set<number>();
    for (const variant of profile.variants) {
      this.#checkVariant(profile, variant, used);
      this.#checkAlike(first, variant);
    }
    this.#checkUsed(profile, used);
    this.#checkSymbols(first);
  }

  // Those of a profile, which are told apart by their roles and keys.
  #checkUsed(profile: UncheckedPlans['profiles'][number], used: Set<number>): void {
    const named = new Set<string>();
    for (const index of [...used].sort((a, b) => a - b)) {
      const { role, key, size } = this.#plans.buffers[index]!;
      if (size > profile.maxBuffer) {
        const wanted = `the ${profile.maxBuffer} bytes of profile ${profile.name}`;
        refuse(`buffer ${key}`, `have at most ${wanted}`, size);
      }
      const name = `${role} ${key}`;
      if (role !== Role.Constant && named.has(name)) {
        refuse(`buffer ${key}`, 'have a key of its own', "another's");
      }
      named.add(name);
    }
  }

  #checkVariant(
    profile: UncheckedPlans['profiles'][number],
    variant: PlanVariant,
    used: Set<number>,
  ): void {
    const { buffers, dispatches, kernels } = this.#plans;
    this.#requireRegisters(variant.guards.map((guard) => guard.register));
    requireCount('dispatches', variant.dispatches.length, 0, MAX_DISPATCHES);
    requireCount('inputs', variant.inputs.length, 0, MAX_PORTS);
    requireCount('outputs', variant.outputs.length, 0, MAX_PORTS);
    let params = 0;
    for (const index of variant.dispatches) {
      requireIndex("a variant's dispatch", index, dispatches.length);
      const dispatch = dispatches[index]!;
      const bound = dispatch.buffers.length;
      requireCount('storage buffers', bound, 0, profile.maxStorageBuffers);
      if (kernels[dispatch.kernel]!.subgroups && !profile.subgroups) {
        const wanted = 'use subgroups only where the profile has them';
        refuse(dispatch.label, wanted, profile.name);
      }
      for (const buffer of dispatch.buffers) {
        used.add(buffer);
      }
      params += paramsBytes(dispatch);
      requireCount('bytes of parameters', params, 0, MAX_ALL_PARAMS);
    }
    this.#checkPorts(variant.inputs, Role.Input, used);
    this.#checkPorts(variant.outputs, Role.Output, used);
    const { status } = variant;
    if (status < -1) {
      refuse('a status', 'be a buffer', status);
    }
    if (status >= 0) {
      requireIndex('a status', status, buffers.length);
      this.#requireRole(status, Role.Status);
      used.add(status);
    }
  }

  #checkPorts(ports: readonly number[], role: Role, used: Set<number>): void {
    const copied = new Set<number>();
    for (const index of ports) {
      requireIndex('a port', index, this.#plans.ports.length);
      const { name, buffer, isInt } = this.#plans.ports[index]!;
      if (buffer >= 0) {
        this.#requireRole(buffer, role);
        used.add(buffer);
        if (role === Role.Input && copied.has(buffer)) {
          refuse(name, 'have a buffer of its own', this.#plans.buffers[buffer]!.key);
        }
        copied.add(buffer);
      } else if (role === Role.Output && !isInt) {
        refuse(name, 'have a buffer', 'none');
      }
    }
  }

  #requireRole(index: number, wanted: Role): void {
    const { role, key } = this.#plans.buffers[index]!;
    if (role !== wanted) {
      refuse(`buffer ${key}`, `have the role ${wanted}`, role);
    }
  }

  // The arguments of a call are the same whatever variant is taken.
  #checkAlike(first: PlanVariant, other: PlanVariant): void {
    const { inputs, outputs } = other;
    if (
      first.outputs.length !== outputs.length ||
      first.inputs.length !== inputs.length
    ) {
      const got = `${inputs.length} inputs and ${outputs.length} outputs`;
      refuse('variants', 'have the same arguments', got);
    }
    inputs.forEach((input, i) => {
      const a = this.#plans.ports[first.inputs[i]!]!;
      const b = this.#plans.ports[input]!;
      if (a.isInt !== b.isInt || a.shape.length !== b.shape.length) {
        refuse(`input ${a.name}`, 'be alike in all variants', b.name);
      }
    });
  }

  #checkSymbols(variant: PlanVariant): void {
    for (const { name, input, dim } of this.#plans.symbols) {
      requireIndex("a symbol's input", input, variant.inputs.length);
      const port = this.#plans.ports[variant.inputs[input]!]!;
      const isFound = port.isInt ? dim === -1 : dim >= 0 && dim < port.shape.length;
      if (!isFound) {
        refuse(`symbol ${name}`, `be found in input ${port.name}`, `dimension ${dim}`);
      }
    }
  }
}

function checkAccess({ label, access }: PlanKernel): void {
  requireCount('bindings', access.length, 0, MAX_BINDINGS);
  access.forEach((each, i) => {
    requireIndex('an access', each, Access.Uniform + 1);
    if (each === Access.Uniform && i + 1 < access.length) {
      refuse(`kernel ${label}`, 'have its uniform binding last', `binding ${i}`);
    }
  });
}
