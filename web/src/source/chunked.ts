/** A file that comes in chunks, of which the page never holds more than a few. */

import { WebGPUError } from '../errors';
import { CHUNK, type Chunk, type Feed } from './feeds';
import { reason, type Version } from './http';
import type { Check, Wanted } from './integrity';
import type { Stop } from './stop';
import type { Store } from './store';
import type { Source } from './types';

// What `read` had is read again nearby: so many chunks are kept until `finish`. Of what
// comes in order only, the head of a program must fit.
const KEPT = 8;
const KEPT_FORWARD = 32;

export interface ChunkedOptions {
  name: string;
  feed: Feed;
  version: Version;
  store: Store | undefined;
  /** Whether the store has all of the file. */
  isWhole: boolean;
  check: Check | undefined;
  wanted: Wanted | undefined;
  stop: Stop;
  onBytes: ((loaded: number, total: number | undefined) => void) | undefined;
  onWarning: (message: string) => void;
}

export class ChunkedSource implements Source {
  readonly #options: ChunkedOptions;
  readonly #feed: Feed;
  readonly #kept = new Map<number, Uint8Array<ArrayBuffer>>();
  // Chunks that onBytes was told of.
  readonly #seen = new Set<number>();
  #store: Store | undefined;
  #check: Check | undefined;
  #storing: Promise<void> = Promise.resolve();
  #queue: Promise<unknown> = Promise.resolve();
  /** The chunk that `stream` had last: the next stream may start in it. */
  #last: Chunk | undefined;
  // Memory of a chunk that nobody has any more. Chunks that were left to the garbage
  // collector would be as much as the file before it comes by.
  #free: ArrayBuffer | undefined;
  #writing: Uint8Array | undefined;
  #streams = 0;
  #loaded = 0;
  #isFinished = false;
  #failed: unknown;

  constructor(options: ChunkedOptions) {
    this.#options = options;
    this.#feed = options.feed;
    this.#store = options.store;
    this.#check = options.check;
  }

  get name(): string {
    return this.#options.name;
  }

  get size(): number | undefined {
    return this.#feed.size;
  }

  async read(start: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    this.#checkRange(start, end);
    const first = Math.floor(start / CHUNK);
    const until = Math.ceil(end / CHUNK);
    const all = new Uint8Array(end - start);
    for (let index = first; index < until; index++) {
      await this.#inTurn(async () => {
        const bytes = await this.#get(index, until, true);
        this.#checkEnd(index, bytes, end);
        const from = Math.max(start - index * CHUNK, 0);
        const part = bytes.subarray(from, end - index * CHUNK);
        all.set(part, index * CHUNK + from - start);
      });
    }
    return all;
  }

  async *stream(start: number, end: number): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    this.#checkRange(start, end);
    const until = Math.ceil(end / CHUNK);
    let before: Uint8Array<ArrayBuffer> | undefined;
    this.#streams++;
    try {
      for (let index = Math.floor(start / CHUNK); index < until; index++) {
        const bytes = await this.#inTurn(() => this.#get(index, until, false));
        this.#checkEnd(index, bytes, end);
        this.#recycle(before);
        before = bytes;
        const from = Math.max(start - index * CHUNK, 0);
        yield bytes.subarray(from, end - index * CHUNK);
      }
    } finally {
      this.#streams--;
    }
  }

  async finish(): Promise<void> {
    await this.#inTurn(async () => {
      if (this.#isFinished) {
        return;
      }
      await this.#storing;
      await this.#readRest();
      await this.#storing;
      const digest = await this.#verify();
      await this.#keepWhole(digest);
      this.#isFinished = true;
      // What aborts a load does not abort what is read after it.
      this.#options.stop.release();
      await this.#letGo();
    });
  }

  async refuse(error: unknown): Promise<void> {
    const isDamaged =
      error instanceof WebGPUError &&
      (error.code === 'InvalidProgram' ||
        error.code === 'DelegateInvalidCompatibility');
    if (isDamaged) {
      await this.#storing;
      await this.#store?.removeAll();
    }
  }

  async close(): Promise<void> {
    this.#failed ??= new WebGPUError(
      'InvalidState',
      `${this.name}: a source must be open to be read, got closed`,
    );
    this.#options.stop.abort(this.#failed);
    await this.#letGo();
    await this.#storing;
  }

  async #letGo(): Promise<void> {
    this.#kept.clear();
    this.#last = undefined;
    this.#free = undefined;
    await this.#feed.stop();
  }

  // One after the other: the feed has one connection.
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#queue.then(() => {
      if (this.#failed !== undefined) {
        throw this.#failed;
      }
      this.#options.stop.signal.throwIfAborted();
      return work();
    });
    this.#queue = done.catch(() => undefined);
    return done;
  }

  #checkRange(start: number, end: number): void {
    const isRange = Number.isSafeInteger(start) && Number.isSafeInteger(end);
    if (!isRange || start < 0 || end < start || end > (this.size ?? Infinity)) {
      throw new WebGPUError(
        'InvalidProgram',
        `${this.name}: bytes ${start} to ${end} must be in the file, got ` +
          `${this.size} bytes; it is cut short, or no ExecuTorch program`,
      );
    }
  }

  // The size may have become known only now.
  #checkEnd(index: number, bytes: Uint8Array, end: number): void {
    if (bytes.length < Math.min(CHUNK, end - index * CHUNK)) {
      this.#checkRange(0, end);
    }
  }

  async #get(
    index: number,
    until: number,
    isRead: boolean,
  ): Promise<Uint8Array<ArrayBuffer>> {
    const held = this.#held(index);
    if (held !== undefined) {
      return held;
    }
    // What is hashed must pass in order, so gaps are read through.
    while (this.#check !== undefined && this.#check.next < index) {
      await this.#fetch(this.#check.next, index, isRead);
    }
    return this.#fetch(index, until, isRead);
  }

  #memory(): Uint8Array<ArrayBuffer> {
    const buffer = this.#free ?? new ArrayBuffer(CHUNK);
    this.#free = undefined;
    return new Uint8Array(buffer);
  }

  // A chunk that a stream is done with, unless somebody else may still have it.
  #recycle(bytes: Uint8Array<ArrayBuffer> | undefined): void {
    if (bytes === undefined || this.#streams > 1 || bytes === this.#writing) {
      return;
    }
    if (bytes !== this.#last?.bytes && ![...this.#kept.values()].includes(bytes)) {
      this.#free = bytes.buffer;
    }
  }

  #held(index: number): Uint8Array<ArrayBuffer> | undefined {
    return this.#last?.index === index ? this.#last.bytes : this.#kept.get(index);
  }

  async #fetch(
    index: number,
    until: number,
    isRead: boolean,
  ): Promise<Uint8Array<ArrayBuffer>> {
    const stored = await this.#fromStore(index);
    if (stored !== undefined) {
      await this.#check?.pass(index, stored);
      this.#arrived({ index, bytes: stored }, isRead);
      return stored;
    }
    let end = index + 1;
    while (end < until && !this.#store?.has(end)) {
      end++;
    }
    for (;;) {
      if (index * CHUNK >= (this.size ?? Infinity)) {
        return new Uint8Array(0);
      }
      const chunk = await this.#feed.pull(index, end, this.#memory());
      await this.#check?.pass(chunk.index, chunk.bytes);
      await this.#keep(chunk);
      this.#arrived(chunk, isRead);
      if (chunk.index === index) {
        return chunk.bytes;
      }
    }
  }

  async #fromStore(index: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const { size } = this;
    if (size === undefined || !this.#store?.has(index)) {
      return undefined;
    }
    try {
      const into = this.#memory().subarray(0, size - index * CHUNK);
      return await this.#store.get(index, into);
    } catch (error) {
      await this.#dropStore('must be readable', error);
      return undefined;
    }
  }

  #arrived({ index, bytes }: Chunk, isRead: boolean): void {
    if (!this.#seen.has(index)) {
      this.#seen.add(index);
      this.#loaded += bytes.length;
      this.#options.onBytes?.(this.#loaded, this.size);
    }
    if (!isRead) {
      this.#last = { index, bytes };
    } else if (!this.#isFinished) {
      this.#kept.set(index, bytes);
    }
    const most =
      this.#feed.isForward && this.#store === undefined ? KEPT_FORWARD : KEPT;
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= most) {
        break;
      }
      this.#kept.delete(oldest);
    }
  }

  // Written while the next chunk comes; one at a time, so that no more are held.
  async #keep({ index, bytes }: Chunk): Promise<void> {
    await this.#storing;
    const store = this.#store;
    if (store === undefined || bytes.length === 0 || store.has(index)) {
      return;
    }
    this.#writing = bytes;
    this.#storing = store
      .put(index, bytes)
      .catch((error: unknown) => this.#dropStore('must have room', error))
      .finally(() => {
        this.#writing = undefined;
      });
  }

  async #dropStore(requirement: string, error: unknown): Promise<void> {
    const store = this.#store;
    this.#store = undefined;
    this.#options.onWarning(
      `${this.name}: the cache ${requirement}, got ${reason(error)}; the file is loaded ` +
        'without being kept',
    );
    try {
      await store?.removeAll();
    } catch (second) {
      this.#options.onWarning(
        `${this.name}: the cache must let go of the file, got ${reason(second)}`,
      );
    }
  }

  // All that is to be hashed or kept, and did not pass yet.
  async #readRest(): Promise<void> {
    if (
      this.#check === undefined &&
      (this.#store === undefined || this.#options.isWhole)
    ) {
      return;
    }
    const end = () => Math.ceil((this.size ?? Infinity) / CHUNK);
    for (let index = 0; index < end(); index++) {
      const isHashed = this.#check === undefined || this.#check.next > index;
      const isKept = this.#store === undefined || this.#store.has(index);
      if (!isHashed || !isKept) {
        await this.#fetch(index, this.size === undefined ? index + 1 : end(), false);
      }
    }
  }

  async #verify(): Promise<string | undefined> {
    const check = this.#check;
    this.#check = undefined;
    try {
      return check?.end();
    } catch (error) {
      this.#failed = error;
      await this.#letGo();
      await this.#store?.removeAll();
      throw error;
    }
  }

  async #keepWhole(digest: string | undefined): Promise<void> {
    const store = this.#store;
    const { wanted, version, isWhole } = this.#options;
    const { size } = this;
    if (
      store === undefined ||
      size === undefined ||
      (isWhole && digest === undefined)
    ) {
      return;
    }
    const digests =
      wanted === undefined || digest === undefined
        ? {}
        : { [wanted.algorithm]: digest };
    try {
      await store.finish({ version: { ...version, size }, size, digests });
    } catch (error) {
      await this.#dropStore('must have room', error);
    }
  }
}
