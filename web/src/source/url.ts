/** A file at an address: from the network, from what was kept of it, or from both. */

import { hex, sha256 } from '../file/hashes';
import { ChunkedSource } from './chunked';
import { CHUNK, type Feed, ForwardFeed, RangeFeed } from './feeds';
import {
  type Answer,
  type Asking,
  ask,
  isSameVersion,
  reason,
  type Version,
} from './http';
import { Check, type Wanted } from './integrity';
import { Stop } from './stop';
import { type CacheKind, hasPlace, resolveUrl, Store, type Whole } from './store';
import type { Source, SourceOptions } from './types';

// Who is online, but hardly, should not wait for what is there already.
const VALIDATION_MS = 5000;

/** Opens a URL; what the server says of the file is known then. */
export async function openUrl(
  from: string | URL,
  options: SourceOptions,
  wanted: Wanted | undefined,
): Promise<Source> {
  const url = resolveUrl(from);
  const stop = new Stop(options.signal);
  try {
    return await new Opening(url, options, wanted, stop).open();
  } catch (error) {
    stop.abort(error);
    throw error;
  }
}

class Opening {
  readonly #warn: (message: string) => void;
  #store: Store | undefined;
  #asking: Asking;

  constructor(
    readonly url: string,
    readonly options: SourceOptions,
    readonly wanted: Wanted | undefined,
    readonly stop: Stop,
  ) {
    this.#warn = options.onWarning ?? ((message) => console.warn(message));
    this.#asking = { signal: stop.signal, httpCache: 'default' };
  }

  async open(): Promise<Source> {
    this.#store = await this.#openStore();
    if (this.#store !== undefined) {
      // The browser need not keep it twice.
      this.#asking = { ...this.#asking, httpCache: 'no-store' };
      const kept = await this.#openKept(this.#store);
      if (kept !== undefined) {
        return kept;
      }
    }
    const answer = await ask(this.url, this.#asking, 0, CHUNK);
    await this.#useVersion(answer.version);
    return this.#source(this.#feed(answer), answer.version, undefined);
  }

  async #openStore(): Promise<Store | undefined> {
    const isHttp = /^https?:/.test(this.url);
    const asked = this.options.cache;
    const kind: CacheKind = asked ?? (isHttp && hasPlace('cache') ? 'cache' : 'none');
    if (kind === 'none') {
      return undefined;
    }
    try {
      if (!isHttp) {
        throw new Error('an address that is not http or https');
      }
      return await Store.open(kind, this.url);
    } catch (error) {
      this.#warn(
        `${this.url}: the cache must be open to this page, got ${reason(error)}; the ` +
          'file is loaded without being kept',
      );
      return undefined;
    }
  }

  // What was kept, if it is whole and is still what the caller wants.
  async #openKept(store: Store): Promise<Source | undefined> {
    const whole = await store.whole();
    if (whole === undefined) {
      return undefined;
    }
    const digest = this.wanted && whole.digests[this.wanted.algorithm];
    if (digest !== undefined && !this.wanted?.digests.includes(digest)) {
      await store.removeAll(); // another version was meant
      return undefined;
    }
    // A file whose digest was found right when it was kept is not hashed again, and the
    // server is not asked: only this origin can write there, which could as well change
    // the code that would hash it, chunks are written whole or not at all, and the
    // weights in them are hashed as they are uploaded.
    const isRight = digest !== undefined;
    if (!isRight && !(await this.#isCurrent(whole))) {
      return undefined;
    }
    await store.use(whole.tag);
    const feed = new RangeFeed(
      this.url,
      this.#asking,
      { ...whole.version, size: whole.size },
      undefined,
    );
    return this.#source(feed, whole.version, isRight ? 'right' : 'whole');
  }

  // Asks the server, if it can be reached, whether it still has this version.
  async #isCurrent(whole: Whole): Promise<boolean> {
    const soon = AbortSignal.timeout(VALIDATION_MS);
    const signal = AbortSignal.any([this.stop.signal, soon]);
    let answer: Answer;
    try {
      answer = await ask(this.url, { ...this.#asking, signal }, 0, 1);
    } catch (error) {
      this.stop.signal.throwIfAborted();
      this.#warn(
        `${this.url}: whether it changed could not be asked (${reason(error)}); it is ` +
          'loaded as it was kept',
      );
      return true;
    }
    await answer.body.cancel();
    const { size } = answer.version;
    return (
      isSameVersion({ ...whole.version, size }, answer.version) &&
      (size ?? whole.size) === whole.size
    );
  }

  // Chunks of a load that was broken off serve this one if they are of the same version,
  // which only an ETag or a date tells.
  async #useVersion(version: Version): Promise<void> {
    const { etag, lastModified, size } = version;
    const known = etag ?? lastModified;
    const text =
      known === undefined
        ? crypto.randomUUID()
        : JSON.stringify([etag, lastModified, size]);
    const digest = await sha256(new TextEncoder().encode(text));
    try {
      await this.#store?.forgetWhole();
      await this.#store?.use(hex(digest).slice(0, 16));
    } catch (error) {
      this.#warn(`${this.url}: the cache must be writable, got ${reason(error)}`);
      this.#store = undefined;
    }
  }

  #feed({ isPart, version, body }: Answer): Feed {
    const { size } = version;
    if (isPart && size !== undefined) {
      return new RangeFeed(this.url, this.#asking, { ...version, size }, body);
    }
    const again = () => ask(this.url, this.#asking);
    return new ForwardFeed(this.url, body, size, again, version);
  }

  #source(feed: Feed, version: Version, kept: 'right' | 'whole' | undefined): Source {
    const { wanted } = this;
    const check = wanted && kept !== 'right' ? new Check(this.url, wanted) : undefined;
    return new ChunkedSource({
      name: this.url,
      feed,
      version,
      store: this.#store,
      isWhole: kept !== undefined,
      check,
      wanted,
      stop: this.stop,
      onBytes: this.options.onBytes,
      onWarning: this.#warn,
    });
  }
}
