/** Whether a file is the one that was meant, by hashes as Subresource Integrity has them. */

import { WebGPUError } from '../errors';
import { hex, Sha256, sha256 } from '../file/hashes';
import { Sha512 } from '../file/sha512';
import { turn } from '../turn';

type Algorithm = 'sha256' | 'sha384' | 'sha512';

// From the weakest on.
const ALGORITHMS: Record<Algorithm, { bytes: number; make: () => Sha256 | Sha512 }> = {
  sha256: { bytes: 32, make: () => new Sha256() },
  sha384: { bytes: 48, make: () => new Sha512(384) },
  sha512: { bytes: 64, make: () => new Sha512(512) },
};

// So long a piece is hashed in some milliseconds; then the page has a turn.
const SLICE = 256 << 10;

/** What a file may be: one of these digests, in base64. */
export interface Wanted {
  algorithm: Algorithm;
  digests: string[];
}

function toBase64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}

/**
 * Reads `sha384-<base64> sha384-<base64> sha256-...`. As the specification has it, only
 * the strongest algorithm counts, any of its digests will do, and algorithms that are
 * not known are passed over. Unlike there, nothing that is known is an error: who asks
 * for integrity must not get none.
 */
export function parseIntegrity(text: string): Wanted {
  const found = new Map<Algorithm, string[]>();
  for (const item of text.split(/\s+/)) {
    const [, name, digest] = /^(sha256|sha384|sha512)-([^?]*)/.exec(item) ?? [];
    if (name === undefined || digest === undefined) {
      continue;
    }
    const algorithm = name as Algorithm;
    let bytes: string;
    try {
      bytes = atob(digest.replaceAll('-', '+').replaceAll('_', '/'));
    } catch (error) {
      throw badIntegrity(item, { cause: error });
    }
    if (bytes.length !== ALGORITHMS[algorithm].bytes) {
      throw badIntegrity(item);
    }
    found.set(algorithm, [...(found.get(algorithm) ?? []), btoa(bytes)]);
  }
  for (const algorithm of ['sha512', 'sha384', 'sha256'] as const) {
    const digests = found.get(algorithm);
    if (digests !== undefined) {
      return { algorithm, digests };
    }
  }
  throw badIntegrity(text);
}

function badIntegrity(got: string, options?: ErrorOptions): WebGPUError {
  return new WebGPUError(
    'InvalidArgument',
    `integrity: must be sha256-, sha384- or sha512- and a digest in base64, got '${got}'`,
    options,
  );
}

/** Hashes a file whose chunks pass in order. */
export class Check {
  readonly #name: string;
  readonly #wanted: Wanted;
  readonly #hash: Sha256 | Sha512;
  readonly #passed: string[] = [];

  constructor(name: string, wanted: Wanted) {
    this.#name = name;
    this.#wanted = wanted;
    this.#hash = ALGORITHMS[wanted.algorithm].make();
  }

  /** The chunk that is to pass next. */
  get next(): number {
    return this.#passed.length;
  }

  /**
   * A chunk that came: the next one is hashed. One that passed already, and was fetched
   * again, must be the same, since what is used must be what was hashed.
   */
  async pass(index: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    const known = this.#passed[index];
    const digest = hex(await sha256(bytes));
    if (known !== undefined && known !== digest) {
      throw new WebGPUError(
        'InvalidProgram',
        `${this.#name}: what is fetched twice must be the same, got SHA-256 ${known} ` +
          `and ${digest} of part ${index}; it changed meanwhile: load it again`,
      );
    }
    if (index === this.next) {
      await this.add(bytes);
      this.#passed.push(digest);
    }
  }

  /** Hashes bytes that are the next. */
  async add(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length; at += SLICE) {
      this.#hash.add(bytes.subarray(at, at + SLICE));
      await turn();
    }
  }

  /** Throws if the file is another one; gives its digest. Nothing can pass after it. */
  end(): string {
    const { algorithm, digests } = this.#wanted;
    const digest = toBase64(this.#hash.digest());
    if (!digests.includes(digest)) {
      const wanted = digests.map((each) => `${algorithm}-${each}`).join(' or ');
      throw new WebGPUError(
        'InvalidProgram',
        `${this.#name}: integrity must be ${wanted}, got ${algorithm}-${digest}; ` +
          'the file was altered, or is another version than was meant',
      );
    }
    return digest;
  }
}
