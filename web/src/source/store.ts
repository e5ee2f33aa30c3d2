/**
 * Files that were loaded before, in chunks: in the Cache API or in the origin-private
 * file system.
 *
 * Each chunk is an entry of its own, named by the file's version and its number, which
 * the browser writes whole or not at all. An entry `whole` is written when all chunks are
 * there; without it, those that are there save a part of the download and no more.
 */

import { WebGPUError } from '../errors';
import { hex, sha256 } from '../file/hashes';
import { CHUNK } from './feeds';
import { Body, type Version } from './http';

export type CacheKind = 'cache' | 'opfs' | 'none';

/** What is known of a file that is there as a whole. */
export interface Whole {
  version: Version;
  /** The part of the chunks' names that tells versions apart. */
  tag: string;
  size: number;
  /** Digests that the file was found to have, by their algorithm. */
  digests: Record<string, string>;
}

/** Named bytes of one URL. */
interface Entries {
  names(): Promise<string[]>;
  get(name: string): Promise<ReadableStream<Uint8Array> | undefined>;
  put(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<void>;
  remove(name: string): Promise<void>;
}

const PLACE = 'executorch-webgpu';
const WHOLE = 'whole';

class CacheEntries implements Entries {
  private constructor(
    readonly cache: Cache,
    readonly url: string,
  ) {}

  static async open(url: string): Promise<CacheEntries> {
    return new CacheEntries(await caches.open(PLACE), url);
  }

  // A request that nobody makes: the file's own URL with one more parameter.
  #key(name: string): string {
    const url = new URL(this.url);
    url.searchParams.append(PLACE, name);
    return url.href;
  }

  async names(): Promise<string[]> {
    const prefix = this.#key('');
    const keys = await this.cache.keys(this.url, { ignoreSearch: true });
    return keys
      .filter(({ url }) => url.startsWith(prefix))
      .map(({ url }) => url.slice(prefix.length));
  }

  async get(name: string): Promise<ReadableStream<Uint8Array> | undefined> {
    return (await this.cache.match(this.#key(name)))?.body ?? undefined;
  }

  async put(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    await this.cache.put(this.#key(name), new Response(bytes));
  }

  async remove(name: string): Promise<void> {
    await this.cache.delete(this.#key(name));
  }
}

async function opfsFolder(): Promise<FileSystemDirectoryHandle> {
  const root = await navigator.storage.getDirectory();
  return root.getDirectoryHandle(PLACE, { create: true });
}

/** The folder of a URL, whose name must be one that file systems take. */
async function opfsName(url: string): Promise<string> {
  return hex(await sha256(new TextEncoder().encode(url))).slice(0, 40);
}

class OpfsEntries implements Entries {
  private constructor(readonly folder: FileSystemDirectoryHandle) {}

  static async open(url: string): Promise<OpfsEntries> {
    const place = await opfsFolder();
    const folder = await place.getDirectoryHandle(await opfsName(url), {
      create: true,
    });
    return new OpfsEntries(folder);
  }

  async names(): Promise<string[]> {
    const names: string[] = [];
    for await (const name of this.folder.keys()) {
      names.push(name);
    }
    return names;
  }

  async get(name: string): Promise<ReadableStream<Uint8Array> | undefined> {
    try {
      return (await (await this.folder.getFileHandle(name)).getFile()).stream();
    } catch (error) {
      if (isNotFound(error)) {
        return undefined;
      }
      throw error;
    }
  }

  async put(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    const file = await this.folder.getFileHandle(name, { create: true });
    // What is written is another file until it is closed, and then takes its place.
    const writable = await file.createWritable();
    try {
      await writable.write(bytes);
      await writable.close();
    } catch (error) {
      // Neither what was written nor an empty file stays.
      await writable.abort().catch(() => undefined);
      await this.remove(name);
      throw error;
    }
  }

  async remove(name: string): Promise<void> {
    try {
      await this.folder.removeEntry(name);
    } catch (error) {
      if (!isNotFound(error)) {
        throw error;
      }
    }
  }
}

function isNotFound(error: unknown): boolean {
  return error instanceof Error && error.name === 'NotFoundError';
}

/** The chunks of one file. */
export class Store {
  readonly #entries: Entries;
  readonly #names: Set<string>;
  #tag = '';

  private constructor(entries: Entries, names: string[]) {
    this.#entries = entries;
    this.#names = new Set(names);
  }

  static async open(kind: 'cache' | 'opfs', url: string): Promise<Store> {
    const make = kind === 'cache' ? CacheEntries.open : OpfsEntries.open;
    const entries = await make(url);
    return new Store(entries, await entries.names());
  }

  /** What is there of the file, if it is all there. */
  async whole(): Promise<Whole | undefined> {
    const stream = this.#names.has(WHOLE) ? await this.#entries.get(WHOLE) : undefined;
    if (stream === undefined) {
      return undefined;
    }
    const whole = (await new Response(stream).json()) as Whole;
    for (let index = 0; index * CHUNK < whole.size; index++) {
      if (!this.#names.has(`${whole.tag}.${index}`)) {
        return undefined; // the browser has thrown something away
      }
    }
    return whole;
  }

  /** Works on the chunks of one version, and removes those of others. */
  async use(tag: string): Promise<void> {
    this.#tag = tag;
    for (const name of this.#names) {
      if (!name.startsWith(`${tag}.`) && name !== WHOLE) {
        await this.#remove(name);
      }
    }
  }

  has(index: number): boolean {
    return this.#names.has(`${this.#tag}.${index}`);
  }

  /**
   * A chunk; undefined if it is not there, or has not the size that it must.
   * @param into memory for it, as long as it must be
   */
  async get(
    index: number,
    into: Uint8Array<ArrayBuffer>,
  ): Promise<Uint8Array<ArrayBuffer> | undefined> {
    if (!this.has(index)) {
      return undefined;
    }
    const name = `${this.#tag}.${index}`;
    const stream = await this.#entries.get(name);
    if (stream !== undefined) {
      const body = new Body(name, stream, undefined, 0, undefined);
      const filled = await body.take(into);
      const more = await body.take(new Uint8Array(1));
      if (filled === into.length && more === 0) {
        return into;
      }
      await body.cancel();
    }
    await this.#remove(name);
    return undefined;
  }

  async put(index: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    const name = `${this.#tag}.${index}`;
    await this.#entries.put(name, bytes);
    this.#names.add(name);
  }

  /** All chunks are there. */
  async finish(whole: Omit<Whole, 'tag'>): Promise<void> {
    const text = JSON.stringify({ ...whole, tag: this.#tag });
    await this.#entries.put(WHOLE, new TextEncoder().encode(text));
    this.#names.add(WHOLE);
  }

  /** The file is not whole any more, as far as anyone can tell. */
  async forgetWhole(): Promise<void> {
    await this.#remove(WHOLE);
  }

  async removeAll(): Promise<void> {
    // First of all it is no longer whole.
    await this.forgetWhole();
    for (const name of this.#names) {
      await this.#remove(name);
    }
  }

  async #remove(name: string): Promise<void> {
    await this.#entries.remove(name);
    this.#names.delete(name);
  }
}

/** Whether the browser, or the page, has such a place at all. */
export function hasPlace(kind: 'cache' | 'opfs'): boolean {
  return kind === 'cache'
    ? 'caches' in globalThis
    : typeof globalThis.navigator?.storage?.getDirectory === 'function';
}

/**
 * Removes what was kept of a file, or of all files.
 * @param url as it was loaded; all files without it
 */
export async function clearCache(url?: string | URL): Promise<void> {
  if (url !== undefined) {
    const name = resolveUrl(url);
    for (const kind of ['cache', 'opfs'] as const) {
      if (hasPlace(kind)) {
        await (await Store.open(kind, name)).removeAll();
      }
    }
    return;
  }
  if (hasPlace('cache')) {
    await caches.delete(PLACE);
  }
  if (hasPlace('opfs')) {
    const root = await navigator.storage.getDirectory();
    await root.removeEntry(PLACE, { recursive: true }).catch((error: unknown) => {
      if (!isNotFound(error)) {
        throw error;
      }
    });
  }
}

/** The whole address, without what is behind #, which servers do not see. */
export function resolveUrl(url: string | URL): string {
  const base = globalThis.document?.baseURI ?? globalThis.location?.href;
  try {
    const resolved = new URL(url, base);
    resolved.hash = '';
    return resolved.href;
  } catch (error) {
    throw new WebGPUError(
      'InvalidArgument',
      `load: a URL must be valid, got '${url}'`,
      {
        cause: error,
      },
    );
  }
}
