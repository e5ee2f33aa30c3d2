/** Bytes that are here already: an array, or a file of the visitor's. */

import { WebGPUError } from '../errors';
import { CHUNK } from './feeds';
import { Body, Interrupted, reason } from './http';
import { Check, type Wanted } from './integrity';
import type { Source, SourceOptions } from './types';

abstract class HeldSource implements Source {
  constructor(
    readonly name: string,
    readonly size: number,
    readonly options: SourceOptions,
  ) {}

  protected abstract get(start: number, end: number): Promise<Uint8Array<ArrayBuffer>>;

  /** Its bytes in order, in memory that is used again where it is copied. */
  protected abstract pieces(
    start: number,
    end: number,
  ): AsyncIterable<Uint8Array<ArrayBuffer>>;

  async read(start: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    this.#check(start, end);
    return this.get(start, end);
  }

  async *stream(start: number, end: number): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    this.#check(start, end);
    for await (const piece of this.pieces(start, end)) {
      this.options.signal?.throwIfAborted();
      yield piece;
    }
  }

  #check(start: number, end: number): void {
    if (!(start >= 0 && start <= end && end <= this.size)) {
      throw new WebGPUError(
        'InvalidProgram',
        `${this.name}: bytes ${start} to ${end} must be in the file, got ${this.size} ` +
          'bytes; it is cut short, or no ExecuTorch program',
      );
    }
    this.options.signal?.throwIfAborted();
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

  protected override async *pieces(
    start: number,
    end: number,
  ): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    for (let at = start; at < end; at += CHUNK) {
      const piece = this.#bytes.subarray(at, Math.min(at + CHUNK, end));
      yield piece as Uint8Array<ArrayBuffer>;
    }
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
      throw this.#unreadable(error);
    }
  }

  protected override async *pieces(
    start: number,
    end: number,
  ): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    const stream = this.#blob.slice(start, end).stream();
    const body = new Body(this.name, stream, this.options.signal, start, end);
    const memory = new Uint8Array(CHUNK);
    try {
      for (let at = start; at < end; at += CHUNK) {
        const piece = memory.subarray(0, end - at);
        await body.take(piece);
        yield piece;
      }
    } catch (error) {
      throw error instanceof Interrupted
        ? this.#unreadable(error.cause ?? error)
        : error;
    } finally {
      await body.cancel();
    }
  }

  #unreadable(error: unknown): WebGPUError {
    return new WebGPUError(
      'AccessFailed',
      `${this.name}: must be readable, got ${reason(error)}; was the file changed or ` +
        'removed meanwhile?',
      { cause: error },
    );
  }
}

function isFile(blob: Blob): blob is File {
  return typeof (blob as Partial<File>).name === 'string';
}
