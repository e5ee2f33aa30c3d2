/** SHA-512 and SHA-384 of bytes that come one after the other, on halves of 32 bits. */

import { firstPrimes } from './hashes';

// The largest whole number whose power is not more than n, by Newton's steps.
function integerRoot(n: bigint, root: bigint): bigint {
  let x = 1n << (BigInt(n.toString(2).length) / root + 1n);
  for (;;) {
    const next = ((root - 1n) * x + n / x ** (root - 1n)) / root;
    if (next >= x) {
      return x;
    }
    x = next;
  }
}

// The first 64 bits of the fractions of roots of primes, the higher half first.
function fractions(primes: readonly number[], root: bigint): Int32Array {
  const halves = primes.flatMap((prime) => {
    const bits = integerRoot(BigInt(prime) << (64n * root), root);
    return [Number((bits >> 32n) & 0xffffffffn), Number(bits & 0xffffffffn)];
  });
  return Int32Array.from(halves, (half) => half | 0);
}

let rounds: Int32Array | undefined;

export class Sha512 {
  readonly #state: Int32Array;
  readonly #words = new Int32Array(160);
  readonly #rest = new Uint8Array(128);
  readonly #bytes: number;
  #size = 0;

  /** @param bits of the digest: 512, or 384, which starts with other numbers */
  constructor(bits: 512 | 384 = 512) {
    rounds ??= fractions(firstPrimes(80), 3n);
    const primes = firstPrimes(16);
    this.#state = fractions(bits === 512 ? primes.slice(0, 8) : primes.slice(8), 2n);
    this.#bytes = bits / 8;
  }

  add(bytes: Uint8Array): this {
    let at = 0;
    const filled = this.#size % 128;
    this.#size += bytes.length;
    if (filled > 0) {
      at = Math.min(bytes.length, 128 - filled);
      this.#rest.set(bytes.subarray(0, at), filled);
      if (filled + at < 128) {
        return this;
      }
      this.#mix(this.#rest, 0);
    }
    for (; at + 128 <= bytes.length; at += 128) {
      this.#mix(bytes, at);
    }
    this.#rest.set(bytes.subarray(at));
    return this;
  }

  /** The digest; nothing can be added after it. */
  digest(): Uint8Array<ArrayBuffer> {
    const bits = this.#size * 8;
    const padding = new Uint8Array(((239 - (this.#size % 128)) % 128) + 17);
    padding[0] = 0x80;
    const end = new DataView(padding.buffer, padding.length - 8);
    end.setUint32(0, Math.floor(bits / 2 ** 32));
    end.setUint32(4, bits % 2 ** 32);
    this.add(padding);
    const digest = new Uint8Array(64);
    const view = new DataView(digest.buffer);
    this.#state.forEach((word, i) => {
      view.setInt32(4 * i, word);
    });
    return digest.slice(0, this.#bytes);
  }

  #expand(bytes: Uint8Array, at: number): Int32Array {
    const w = this.#words;
    for (let i = 0, j = at; i < 32; i++, j += 4) {
      w[i] =
        (bytes[j]! << 24) |
        (bytes[j + 1]! << 16) |
        (bytes[j + 2]! << 8) |
        bytes[j + 3]!;
    }
    for (let i = 32; i < 160; i += 2) {
      const xh = w[i - 30]!;
      const xl = w[i - 29]!;
      const yh = w[i - 4]!;
      const yl = w[i - 3]!;
      const s0h = ((xh >>> 1) | (xl << 31)) ^ ((xh >>> 8) | (xl << 24)) ^ (xh >>> 7);
      const s0l =
        ((xl >>> 1) | (xh << 31)) ^
        ((xl >>> 8) | (xh << 24)) ^
        ((xl >>> 7) | (xh << 25));
      const s1h = ((yh >>> 19) | (yl << 13)) ^ ((yl >>> 29) | (yh << 3)) ^ (yh >>> 6);
      const s1l =
        ((yl >>> 19) | (yh << 13)) ^
        ((yh >>> 29) | (yl << 3)) ^
        ((yl >>> 6) | (yh << 26));
      const low = (w[i - 31]! >>> 0) + (s0l >>> 0) + (w[i - 13]! >>> 0) + (s1l >>> 0);
      w[i + 1] = low | 0;
      w[i] = (w[i - 32]! + s0h + w[i - 14]! + s1h + Math.floor(low / 2 ** 32)) | 0;
    }
    return w;
  }

  #mix(bytes: Uint8Array, at: number): void {
    const w = this.#expand(bytes, at);
    const k = rounds!;
    const state = this.#state;
    let [ah, al, bh, bl, ch, cl, dh, dl] = state as unknown as Halves;
    let [eh, el, fh, fl, gh, gl, hh, hl] = state.subarray(8) as unknown as Halves;
    for (let i = 0; i < 160; i += 2) {
      const s1h =
        ((eh >>> 14) | (el << 18)) ^
        ((eh >>> 18) | (el << 14)) ^
        ((el >>> 9) | (eh << 23));
      const s1l =
        ((el >>> 14) | (eh << 18)) ^
        ((el >>> 18) | (eh << 14)) ^
        ((eh >>> 9) | (el << 23));
      const low =
        (hl >>> 0) +
        (s1l >>> 0) +
        (((el & fl) ^ (~el & gl)) >>> 0) +
        (k[i + 1]! >>> 0) +
        (w[i + 1]! >>> 0);
      const firstH =
        (hh +
          s1h +
          ((eh & fh) ^ (~eh & gh)) +
          k[i]! +
          w[i]! +
          Math.floor(low / 2 ** 32)) |
        0;
      const s0h =
        ((ah >>> 28) | (al << 4)) ^
        ((al >>> 2) | (ah << 30)) ^
        ((al >>> 7) | (ah << 25));
      const s0l =
        ((al >>> 28) | (ah << 4)) ^
        ((ah >>> 2) | (al << 30)) ^
        ((ah >>> 7) | (al << 25));
      const secondL = (s0l >>> 0) + (((al & bl) ^ (al & cl) ^ (bl & cl)) >>> 0);
      const secondH =
        (s0h + ((ah & bh) ^ (ah & ch) ^ (bh & ch)) + Math.floor(secondL / 2 ** 32)) | 0;
      hh = gh;
      hl = gl;
      gh = fh;
      gl = fl;
      fh = eh;
      fl = el;
      const e = (dl >>> 0) + (low >>> 0);
      el = e | 0;
      eh = (dh + firstH + Math.floor(e / 2 ** 32)) | 0;
      dh = ch;
      dl = cl;
      ch = bh;
      cl = bl;
      bh = ah;
      bl = al;
      const a = (low >>> 0) + (secondL >>> 0);
      al = a | 0;
      ah = (firstH + secondH + Math.floor(a / 2 ** 32)) | 0;
    }
    const sums = [ah, al, bh, bl, ch, cl, dh, dl, eh, el, fh, fl, gh, gl, hh, hl];
    for (let i = 0; i < 16; i += 2) {
      const low = (state[i + 1]! >>> 0) + (sums[i + 1]! >>> 0);
      state[i + 1] = low | 0;
      state[i] = (state[i]! + sums[i]! + Math.floor(low / 2 ** 32)) | 0;
    }
  }
}

type Halves = [number, number, number, number, number, number, number, number];
