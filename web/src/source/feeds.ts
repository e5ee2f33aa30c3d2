/** Chunks of a file that is somewhere else: by ranges, or in order. */

import { WebGPUError } from '../errors';
import {
  type Answer,
  type Asking,
  ask,
  type Body,
  Interrupted,
  sameVersion,
  type Version,
} from './http';

/** A file comes, is hashed and is kept in chunks of so many bytes; the last is shorter. */
export const CHUNK = 2 << 20;

/** A chunk that came; one that is shorter than CHUNK is the last, and may be empty. */
export interface Chunk {
  index: number;
  bytes: Uint8Array<ArrayBuffer>;
}

export interface Feed {
  /** Undefined until it is known. */
  readonly size: number | undefined;
  /** Whether what has passed cannot be had again but by starting anew. */
  readonly isForward: boolean;
  /**
   * A chunk: the one that is asked for or, where they come in order only, one before it.
   * @param until the chunks up to this one will be wanted next
   * @param into memory for it, of CHUNK bytes
   */
  pull(index: number, until: number, into: Uint8Array<ArrayBuffer>): Promise<Chunk>;
  /** Lets go of the connection; another `pull` makes a new one. */
  stop(): Promise<void>;
}

// Chunks that are asked for at once. Chromium reads on while nobody takes what came, so
// that a request for all of a file may put all of it in memory.
const AHEAD = 8;
// So often the rest of a broken answer is asked for, if not a byte came in between.
const TRIES = 3;

/** A server that sends what part is asked for. */
export class RangeFeed implements Feed {
  readonly size: number;
  readonly isForward = false;
  #body: Body | undefined;

  constructor(
    readonly url: string,
    readonly asking: Asking,
    readonly version: Version & { size: number },
    body: Body | undefined,
  ) {
    this.size = version.size;
    this.#body = body;
  }

  /**
   * Asks again for the rest if the network fails in the middle: a GET changes nothing,
   * and the answer must have the same version. What the server says is not asked twice.
   */
  async pull(
    index: number,
    until: number,
    into: Uint8Array<ArrayBuffer>,
  ): Promise<Chunk> {
    const start = index * CHUNK;
    const end = Math.min(Math.min(until, index + AHEAD) * CHUNK, this.size);
    const bytes = into.subarray(0, Math.max(0, this.size - start));
    let filled = 0;
    let failures = 0;
    while (filled < bytes.length) {
      try {
        const body = await this.#at(start + filled, end);
        const got = await body.take(bytes.subarray(filled));
        filled += got;
        if (got === 0) {
          await this.stop(); // the server sent less than was asked for, and said so
        }
      } catch (error) {
        const reached = Math.max(filled, (this.#body?.position ?? 0) - start);
        await this.stop();
        failures = reached > filled ? 1 : failures + 1;
        filled = reached;
        if (!(error instanceof Interrupted) || failures >= TRIES) {
          throw error;
        }
        await new Promise((resolve) => setTimeout(resolve, 100 * failures));
      }
    }
    return { index, bytes };
  }

  async #at(position: number, end: number): Promise<Body> {
    if (this.#body?.position !== position) {
      await this.stop();
    }
    if (this.#body === undefined) {
      const answer = await ask(this.url, this.asking, position, end);
      this.#body = answer.body;
      if (!answer.isPart) {
        await this.stop();
        throw new WebGPUError(
          'AccessFailed',
          `${this.url}: the server must send bytes ${position} to ${end}, as it did ` +
            'before, got the whole file',
        );
      }
      sameVersion(this.url, this.version, answer.version);
    }
    return this.#body;
  }

  async stop(): Promise<void> {
    await this.#body?.cancel();
    this.#body = undefined;
  }
}

/** A server that sends only whole files, or a stream: what comes, comes in order. */
export class ForwardFeed implements Feed {
  readonly isForward = true;
  size: number | undefined;
  #body: Body | undefined;
  #next = 0;

  /** @param again makes the same body anew; undefined if it comes only once */
  constructor(
    readonly name: string,
    body: Body | undefined,
    size: number | undefined,
    readonly again: (() => Promise<Answer>) | undefined,
    readonly version?: Version,
  ) {
    this.#body = body;
    this.size = size;
  }

  async pull(
    index: number,
    _until: number,
    into: Uint8Array<ArrayBuffer>,
  ): Promise<Chunk> {
    if (this.#body === undefined || index < this.#next) {
      await this.#restart(index);
    }
    const filled = (await this.#body?.take(into)) ?? 0;
    const chunk = { index: this.#next, bytes: into.subarray(0, filled) };
    this.#next++;
    if (filled < CHUNK) {
      this.size = chunk.index * CHUNK + filled;
    }
    return chunk;
  }

  async #restart(index: number): Promise<void> {
    if (this.again === undefined) {
      throw new WebGPUError(
        'InvalidState',
        `${this.name}: a stream must be read in order, got byte ${index * CHUNK} after ` +
          `byte ${this.#next * CHUNK}; load from a URL, a Blob or bytes`,
      );
    }
    await this.stop();
    const answer = await this.again();
    this.#body = answer.body;
    this.#next = 0;
    if (this.version !== undefined) {
      sameVersion(this.name, this.version, answer.version);
    }
  }

  async stop(): Promise<void> {
    await this.#body?.cancel();
    this.#body = undefined;
  }
}
