/** One request for a file or a part of it, and what can be wrong with the answer. */

import { WebGPUError } from '../errors';

/** What tells one version of a file from another. */
export interface Version {
  size: number | undefined;
  etag: string | undefined;
  lastModified: string | undefined;
}

/** The network failed, where another request may have the rest. */
export class Interrupted extends WebGPUError {
  constructor(message: string, options?: ErrorOptions) {
    super('AccessFailed', message, options);
  }
}

/** How requests are made. */
export interface Asking {
  signal: AbortSignal | undefined;
  /** The browser's own HTTP cache. */
  httpCache: RequestCache;
}

export interface Answer {
  /** Whether it is the part that was asked for, and not the whole file. */
  isPart: boolean;
  version: Version;
  body: Body;
}

/** Throws if the two are not one version. */
export function sameVersion(name: string, wanted: Version, got: Version): void {
  const shown = ({ etag, lastModified, size }: Version) =>
    [etag ?? lastModified ?? 'no ETag', size === undefined ? '' : `${size} bytes`]
      .filter((part) => part !== '')
      .join(', ');
  if (!isSameVersion(wanted, got)) {
    throw new WebGPUError(
      'InvalidProgram',
      `${name}: must stay the same while it is loaded, got ${shown(wanted)}, then ` +
        `${shown(got)}; load it again`,
    );
  }
}

/** Whether two answers have the same version, as far as the server tells. */
export function isSameVersion(a: Version, b: Version): boolean {
  return a.etag === b.etag && a.lastModified === b.lastModified && a.size === b.size;
}

/** The total size and the range in `bytes 0-99/1234`; undefined if it says less. */
function contentRange(text: string | null): [number, number, number] | undefined {
  const found = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(text ?? '');
  return found === null
    ? undefined
    : [Number(found[1]), Number(found[2]) + 1, Number(found[3])];
}

function versionOf(headers: Headers, size: number | undefined): Version {
  return {
    size,
    etag: headers.get('etag') ?? undefined,
    lastModified: headers.get('last-modified') ?? undefined,
  };
}

async function get(
  url: string,
  headers: HeadersInit,
  asking: Asking,
): Promise<Response> {
  asking.signal?.throwIfAborted();
  try {
    return await fetch(url, {
      headers,
      cache: asking.httpCache,
      ...(asking.signal === undefined ? {} : { signal: asking.signal }),
    });
  } catch (error) {
    asking.signal?.throwIfAborted();
    throw new Interrupted(
      `${url}: must be reachable, got ${reason(error)}; is the server up, and does it ` +
        'allow this page (CORS)?',
      { cause: error },
    );
  }
}

/** Asks for a part, or for the whole file if no end is given. */
export async function ask(
  url: string,
  asking: Asking,
  start = 0,
  end?: number,
): Promise<Answer> {
  // No If-Range: servers of other origins would have to allow it, and the ETag of each
  // answer is compared instead.
  const headers = end === undefined ? {} : { Range: `bytes=${start}-${end - 1}` };
  const response = await get(url, headers, asking);
  if (response.status === 206 && end !== undefined) {
    const range = contentRange(response.headers.get('content-range'));
    if (range !== undefined) {
      const [first, last, size] = range;
      if (first !== start || last > end || last <= first) {
        await response.body?.cancel();
        throw new WebGPUError(
          'AccessFailed',
          `${url}: the server must send bytes ${start} to ${end}, got ${first} to ${last}`,
        );
      }
      return {
        isPart: true,
        version: versionOf(response.headers, size),
        body: new Body(url, response.body, asking.signal, first, last),
      };
    }
  }
  if (end !== undefined && [206, 416].includes(response.status)) {
    // The total size is not told, as to pages of other origins, or the file is empty:
    // the whole may be had.
    await response.body?.cancel();
    return ask(url, asking);
  }
  if (response.status !== 200) {
    await response.body?.cancel();
    throw statusError(url, response);
  }
  // A compressed body has another length than it announces.
  const encoding = response.headers.get('content-encoding') ?? 'identity';
  const length = response.headers.get('content-length');
  const size = encoding === 'identity' && length !== null ? Number(length) : undefined;
  return {
    isPart: false,
    version: versionOf(response.headers, size),
    body: new Body(url, response.body, asking.signal, 0, size),
  };
}

function statusError(url: string, response: Response): WebGPUError {
  const isGone = response.status === 404 || response.status === 410;
  const from = response.redirected ? ` from ${response.url}` : '';
  return new WebGPUError(
    isGone ? 'NotFound' : 'AccessFailed',
    `${url}: must be there, got HTTP status ${response.status} ` +
      `${response.statusText}`.trimEnd() +
      from,
  );
}

/** What an error that somebody else threw says. */
export function reason(error: unknown): string {
  if (!(error instanceof Error)) {
    return String(error);
  }
  if (error instanceof WebGPUError) {
    return error.message;
  }
  // Node says what happened in the cause.
  const cause = error.cause instanceof Error ? `: ${error.cause.message}` : '';
  return `${error.name}: ${error.message}${cause}`;
}

type Piece = ReadableStreamReadResult<Uint8Array>;

interface Reader {
  read(): Promise<Piece>;
  cancel(): Promise<void>;
}

// Bytes that are read at once into memory that is used again and again: an array for
// each piece would be as much garbage as the file is long.
const SCRATCH = 256 << 10;

function readerOf(stream: ReadableStream<Uint8Array>): Reader {
  let reader: ReadableStreamBYOBReader;
  try {
    reader = stream.getReader({ mode: 'byob' });
  } catch (error) {
    if (error instanceof TypeError) {
      return stream.getReader(); // a stream that has arrays of its own
    }
    throw error;
  }
  let scratch = new ArrayBuffer(SCRATCH);
  return {
    read: async () => {
      const piece = await reader.read(new Uint8Array(scratch));
      scratch = piece.value?.buffer ?? scratch;
      return piece as Piece;
    },
    cancel: () => reader.cancel(),
  };
}

// Bodies that are being read. Chromium forgets a stream that nothing else leads to, and
// with it who waits for the next piece.
const reading = new Set<Body>();

/** Bytes that come one after the other, held to their announced number. */
export class Body {
  readonly #name: string;
  readonly #reader: Reader | undefined;
  readonly #signal: AbortSignal | undefined;
  readonly #end: number | undefined;
  #rest: Uint8Array = new Uint8Array(0);
  #position: number;
  #isDone = false;

  /** @param end where the last byte must be; undefined if it was not told */
  constructor(
    name: string,
    stream: ReadableStream<Uint8Array> | null,
    signal: AbortSignal | undefined,
    start: number,
    end: number | undefined,
  ) {
    this.#name = name;
    this.#reader = stream === null ? undefined : readerOf(stream);
    this.#signal = signal;
    this.#position = start;
    this.#end = end;
  }

  /** Where in the file the next byte is. */
  get position(): number {
    return this.#position;
  }

  /** Fills `target` as far as there are bytes, and gives how many there were. */
  async take(target: Uint8Array): Promise<number> {
    let filled = 0;
    while (filled < target.length) {
      if (this.#rest.length === 0) {
        if (!(await this.#more())) {
          break;
        }
        continue;
      }
      const part = this.#rest.subarray(0, target.length - filled);
      target.set(part, filled);
      filled += part.length;
      this.#position += part.length;
      this.#rest = this.#rest.subarray(part.length);
    }
    return filled;
  }

  // Reads on; false at the end.
  async #more(): Promise<boolean> {
    if (this.#isDone) {
      return false;
    }
    this.#signal?.throwIfAborted();
    let piece: Piece;
    reading.add(this);
    try {
      piece = (await this.#reader?.read()) ?? { done: true, value: undefined };
    } catch (error) {
      this.#isDone = true;
      this.#signal?.throwIfAborted();
      throw new Interrupted(
        `${this.#name}: ${this.#wanted()} must come, got ${reason(error)} at byte ` +
          `${this.#position}`,
        { cause: error },
      );
    } finally {
      reading.delete(this);
    }
    if (piece.done) {
      this.#isDone = true;
      this.#signal?.throwIfAborted();
      if (this.#end !== undefined && this.#position < this.#end) {
        throw new Interrupted(
          `${this.#name}: ${this.#wanted()} must come, got its end at byte ` +
            `${this.#position}; the download was cut short`,
        );
      }
      return false;
    }
    if (!(piece.value instanceof Uint8Array)) {
      throw new WebGPUError(
        'InvalidArgument',
        `${this.#name}: pieces must be Uint8Array, got ${typeof piece.value}`,
      );
    }
    this.#rest = piece.value;
    if (this.#end !== undefined && this.#position + this.#rest.length > this.#end) {
      await this.cancel();
      throw new WebGPUError(
        'InvalidProgram',
        `${this.#name}: ${this.#wanted()} must come, got more`,
      );
    }
    return true;
  }

  #wanted(): string {
    return this.#end === undefined ? 'all bytes' : `bytes up to ${this.#end}`;
  }

  /** Tells the other side that no more is wanted. */
  async cancel(): Promise<void> {
    if (!this.#isDone) {
      this.#isDone = true;
      // What fails now fails for nobody.
      await this.#reader?.cancel().catch(() => undefined);
    }
  }
}
