/** What a page and its worker say to each other, typed once for both. */

import { CODES, type Code, WebGPUError } from '../errors';
import type { MethodMeta } from '../meta';
import type { LoadOptions, Lost, Progress, Stats } from '../module';
import type { Requirements } from '../open';
import type { Profile } from '../profile_table';
import type { SourceFrom } from '../source';
import type { TensorData, TensorType } from '../tensor';
import type { Verified, VerifyOptions } from '../verify';

/** A tensor on its way: its elements, the number that the worker has it by, or both. */
export interface WireTensor {
  type: TensorType;
  dims: readonly number[];
  data: TensorData | undefined;
  remote: number | undefined;
}

/** An input or an output on its way. */
export type WireValue = WireTensor | number | bigint | boolean;

/** Options of a load that can be sent; what is called back comes as events. */
export type WireLoadOptions = Omit<
  LoadOptions,
  'onProgress' | 'onLost' | 'onWarning' | 'signal' | 'device'
> & { signal: number | undefined };

/** What a page knows of a module that a worker has. */
export interface ModuleFacts {
  requirements: Requirements;
  metas: MethodMeta[];
  isBundle: boolean;
  hasState: boolean;
}

interface Run {
  module: number;
  name: string;
  inputs: WireValue[];
}

/** What a page asks for, and what it gets. Modules and signals are numbered by the page. */
export interface Calls {
  open: {
    asks: { module: number; from: SourceFrom; options: WireLoadOptions };
    gets: ModuleFacts;
  };
  load: { asks: { module: number }; gets: ModuleFacts };
  execute: { asks: Run & { signal: number | undefined }; gets: WireValue[] };
  profile: { asks: Run; gets: Omit<Profile, 'outputs'> & { outputs: WireValue[] } };
  resetState: { asks: { module: number }; gets: undefined };
  stats: { asks: { module: number }; gets: Stats };
  verify: {
    asks: {
      module: number;
      options: Omit<VerifyOptions, 'signal'>;
      signal: number | undefined;
    };
    gets: Verified[];
  };
  /** The elements of a tensor. */
  read: { asks: { tensor: number }; gets: TensorData };
}

export type CallName = keyof Calls;

/** From the page: a call, which is answered, or news, which are not. */
export type ToWorker =
  | { [Name in CallName]: { kind: Name; id: number } & Calls[Name]['asks'] }[CallName]
  | { kind: 'abort'; signal: number; reason: WireError }
  /** The page is done with a signal, a tensor or a module. */
  | { kind: 'forget'; signal: number }
  | { kind: 'release'; tensor: number }
  | { kind: 'dispose'; module: number };

/** From the worker: that it listens, an answer, or what a module has to tell. */
export type FromWorker =
  | { kind: 'ready'; lock: string | undefined }
  | { kind: 'answer'; id: number; value: unknown }
  | { kind: 'error'; id: number; error: WireError }
  | { kind: 'progress'; module: number; detail: Progress }
  | { kind: 'lost'; module: number; detail: Lost }
  | { kind: 'warning'; module: number; detail: string };

/** A worker as a page sees it, or the page as the worker does. */
export interface Port {
  postMessage(message: unknown, transfer: Transferable[]): void;
  addEventListener(type: 'message', listen: (event: MessageEvent) => void): void;
}

/** An error on its way: classes do not pass, names, codes and texts do. */
export interface WireError {
  name: string;
  message: string;
  code: string | undefined;
  stack: string | undefined;
  cause: WireError | undefined;
}

// Of causes that have causes, this many are told.
const CAUSES = 4;

export function toWire(error: unknown, depth = 0): WireError {
  if (!(error instanceof Error)) {
    const message = String(error);
    return {
      name: 'Error',
      message,
      code: undefined,
      stack: undefined,
      cause: undefined,
    };
  }
  const { name, message, stack, cause } = error;
  const code = error instanceof WebGPUError ? error.code : undefined;
  const hasCause = cause !== undefined && depth < CAUSES;
  return {
    name,
    message,
    code,
    stack,
    cause: hasCause ? toWire(cause, depth + 1) : undefined,
  };
}

export function fromWire({ name, message, code, stack, cause }: WireError): Error {
  const options = cause === undefined ? {} : { cause: fromWire(cause) };
  let error: Error;
  if (code !== undefined && code in CODES) {
    error = new WebGPUError(code as Code, message, options);
  } else if (name === 'AbortError' || name === 'TimeoutError') {
    return new DOMException(message, name);
  } else {
    error = new Error(message, options);
    error.name = name;
  }
  // Where it was thrown, not where it came to.
  error.stack = stack ?? error.stack ?? '';
  return error;
}
