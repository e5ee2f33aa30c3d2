import type { CacheKind } from './store';

/** What a program's bytes are read through. */
export interface Source {
  /** What messages call it: an address, or a file's name. */
  readonly name: string;
  /** Bytes of the file; undefined until it is known. */
  readonly size: number | undefined;
  /** The bytes of a range, as a copy. */
  read(start: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
  /**
   * The bytes of a range in order, in pieces that must not be changed, and that are good
   * until the next is asked for.
   */
  stream(start: number, end: number): AsyncIterable<Uint8Array<ArrayBuffer>>;
  /**
   * Must be called, and must not throw, before anything that was read is used: reads
   * what is left of the file where it is to be kept or hashed, and throws if it is not
   * the one that was meant. What was held in memory is let go. Reading goes on.
   */
  finish(): Promise<void>;
  /**
   * What was read was refused with an error: if the file is to blame, nothing of it is
   * kept, since the next load would be refused alike.
   */
  refuse(error: unknown): Promise<void>;
  /** Ends connections; nothing can be read after it. */
  close(): Promise<void>;
}

/** What a program can be loaded from; strings are addresses. */
export type SourceFrom =
  | string
  | URL
  | ArrayBuffer
  | SharedArrayBuffer
  | ArrayBufferView
  | Blob
  | ReadableStream<Uint8Array>;

export interface SourceOptions {
  /**
   * Where a URL's file is kept for the next time: the Cache API, the origin-private file
   * system, or nowhere. By default in the Cache API, where the browser has it.
   */
  cache?: CacheKind | undefined;
  /** What the whole file must be, as in HTML: `sha384-` and the digest in base64. */
  integrity?: string | undefined;
  signal?: AbortSignal | undefined;
  /** Told as bytes of the file come, wherever from; the total may not be known yet. */
  onBytes?: ((loaded: number, total: number | undefined) => void) | undefined;
  /** Told what went wrong without stopping the load; else the console is. */
  onWarning?: ((message: string) => void) | undefined;
}
