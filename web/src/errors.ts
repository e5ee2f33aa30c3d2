/**
 * What goes wrong, as ExecuTorch names it: the codes and their numbers are those of
 * `executorch::runtime::Error`, and the texts are the same in Python, C++ and here.
 */

export const CODES = {
  Internal: 0x01,
  InvalidState: 0x02,
  NotSupported: 0x10,
  InvalidArgument: 0x12,
  NotFound: 0x20,
  MemoryAllocationFailed: 0x21,
  AccessFailed: 0x22,
  InvalidProgram: 0x23,
  DelegateInvalidCompatibility: 0x30,
  DelegateInvalidHandle: 0x32,
} as const;

export type Code = keyof typeof CODES;

/** Every error that this package throws on purpose. */
export class WebGPUError extends Error {
  override readonly name = 'WebGPUError';
  /** The number of `code`, as ExecuTorch has it. */
  readonly number: number;

  constructor(
    readonly code: Code,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.number = CODES[code];
  }
}
