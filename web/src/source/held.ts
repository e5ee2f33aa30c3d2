/** Bytes that are here already: an array, or a file of the visitor's. */

import { WebGPUError } from '../errors';
import { CHUNK } from './feeds';
import { reason } from './http';
import { Check, type Wanted } from './integrity';
import type { Source, SourceOptions } from './types';

abstract class HeldSource implements Source {
  constructor(
    readonly name: string,
    readonly size: number,
    readonly options: SourceOptions,
  ) {}

  protected abstract get(start: number, end: number): Promise<Uint8Array<ArrayBuffer>>;

  async read(start: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    if (!(start >= 0 && start <= end && end <= this.size)) {
      throw new WebGPUError(
        'InvalidProgram',
        `${this.name}: bytes ${start} to ${end} must be in the file, got ${this.size} ` +
          'bytes; it is cut short, or no ExecuTorch program',
      );
    }
    this.options.signal?.throwIfAborted();
    return this.get(start, end);
  }

  async *stream(start: number, end: number): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    for (let at = start; at < end; at += CHUNK) {
      yield await this.read(at, Math.min(at + CHUNK, end));
    }
  }

  /** Hashes all of it, before anything is read. */
  async verify(wanted: Wanted): Promise<void> {
    const check = new Check(this.name, wanted);
    for await (const bytes of this.stream(0, this.size)) {
      await check.add(bytes);
    }
    check.end();
  }

  async finish(): Promise<void> {
    this.options.onBytes?.(this.size, this.size);
  }

  async refuse(): Promise<void> {}

  async close(): Promise<void> {}
}

/** An array, which is not copied and must not change while a program is loaded. */
export class BytesSource extends HeldSource {
  readonly #bytes: Uint8Array;

  constructor(bytes: Uint8Array, options: SourceOptions) {
    super('bytes', bytes.byteLength, options);
    this.#bytes = bytes;
  }

  protected override async get(
    start: number,
    end: number,
  ): Promise<Uint8Array<ArrayBuffer>> {
    return this.#bytes.slice(start, end) as Uint8Array<ArrayBuffer>;
  }
}

/** A Blob or File, of which the browser reads what is asked for. */
export class BlobSource extends HeldSource {
  readonly #blob: Blob;

  constructor(blob: Blob, options: SourceOptions) {
    super(isFile(blob) ? blob.name : 'Blob', blob.size, options);
    this.#blob = blob;
  }

  protected override async get(
    start: number,
    end: number,
  ): Promise<Uint8Array<ArrayBuffer>> {
    try {
      return new Uint8Array(await this.#blob.slice(start, end).arrayBuffer());
    } catch (error) {
      throw new WebGPUError(
        'AccessFailed',
        `${this.name}: must be readable, got ${reason(error)}; was the file changed or ` +
          'removed meanwhile?',
        { cause: error },
      );
    }
  }
}

function isFile(blob: Blob): blob is File {
  return typeof (blob as Partial<File>).name === 'string';
}
