/**
 * Weights from a program's named data to GPU buffers: streamed in the order of the file,
 * converted and hashed in pieces, so that the host never holds more than a few of them.
 */

import { WebGPUError } from '../errors';
import { ContentHash, contentKey } from '../file/hashes';
import type { PlanBuffer, PlanConstant } from '../file/plans';
import type { Span } from '../file/program';
import {
  isSameBytes,
  scalarSize,
  storageSize,
  storedSize,
  toStorage,
} from '../player/convert';
import { countOf } from '../tensor';
import type { Gpu, Memory } from './device';

/** Bytes in order, as a source streams them. */
export interface ByteSource {
  stream(start: number, end: number): AsyncIterable<Uint8Array>;
}

// Host bytes that one write converts; a multiple of every element's size.
const PIECE = 4 << 20;
// Bytes that the browser may hold for the GPU before it has taken them.
const IN_FLIGHT = 12 << 20;
// What lies closer together in the file is fetched together.
const GAP = 64 << 10;

/** A buffer that is to be filled, or that another module has filled. */
interface Weight {
  buffer: GPUBuffer;
  size: number;
  /** Undefined if it is filled. */
  constant: PlanConstant | undefined;
}

// What all delegates that have the same content share.
function contentName(
  spec: PlanBuffer,
  constant: PlanConstant,
  verify: boolean,
): string {
  const { dtype, storage, shape, dataKey } = constant;
  return [verify, dtype, storage, spec.size, ...shape, 'of', dataKey].join(' ');
}

export interface UploadOptions {
  /** The method's name, for messages. */
  name: string;
  /** Whether data must be what its key is the hash of. */
  verify: boolean;
  signal: AbortSignal | undefined;
  onBytes: (bytes: number) => void;
}

/** The weights of one module, of which it shares with others what is the same. */
export class Weights {
  readonly #gpu: Gpu;
  readonly #memory: Memory;
  readonly #namedData: ReadonlyMap<string, Span>;
  readonly #verify: boolean;
  readonly #weights = new Map<string, Weight>();

  constructor(memory: Memory, namedData: ReadonlyMap<string, Span>, verify: boolean) {
    this.#gpu = memory.gpu;
    this.#memory = memory;
    this.#namedData = namedData;
    this.#verify = verify;
  }

  /** Bytes on the GPU. */
  get bytes(): number {
    return this.#sum((weight) => weight.size);
  }

  /** Bytes of the file that are to be read. */
  get missing(): number {
    return this.#sum(({ constant }) =>
      constant === undefined ? 0 : (this.#namedData.get(constant.dataKey)?.size ?? 0),
    );
  }

  #sum(count: (weight: Weight) => number): number {
    return [...this.#weights.values()].reduce((sum, each) => sum + count(each), 0);
  }

  /** The buffer of a constant, which is filled by `upload`; called within `guard`. */
  buffer(spec: PlanBuffer, constant: PlanConstant): GPUBuffer {
    const name = contentName(spec, constant, this.#verify);
    const known = this.#weights.get(name);
    if (known !== undefined) {
      return known.buffer;
    }
    const shared = this.#gpu.constants.get(name);
    if (shared !== undefined) {
      shared.users++;
      const { buffer } = shared;
      this.#weights.set(name, { buffer, size: spec.size, constant: undefined });
      return buffer;
    }
    const usage =
      GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const buffer = this.#memory.create(`constant ${spec.key}`, spec.size, usage);
    this.#weights.set(name, { buffer, size: spec.size, constant });
    return buffer;
  }

  /** Fills what is missing; from then on, others may have it. */
  async upload(source: ByteSource, options: UploadOptions): Promise<void> {
    const upload = new Upload(this.#gpu, options);
    for (const { buffer, constant } of this.#weights.values()) {
      if (constant !== undefined) {
        upload.add(this.#spanOf(constant, options.name), buffer, constant);
      }
    }
    await upload.run(source);
    for (const [name, weight] of this.#weights) {
      if (weight.constant !== undefined && !this.#gpu.constants.has(name)) {
        this.#gpu.constants.set(name, { buffer: weight.buffer, users: 1 });
        this.#memory.give(weight.buffer);
        weight.constant = undefined;
      }
    }
  }

  /** Lets go of all that is shared. */
  release(): void {
    for (const [name, { buffer }] of this.#weights) {
      const shared = this.#gpu.constants.get(name);
      if (shared?.buffer === buffer) {
        shared.users--;
        if (shared.users === 0) {
          this.#gpu.constants.delete(name);
          buffer.destroy();
        }
      }
    }
    this.#weights.clear();
  }

  #spanOf(constant: PlanConstant, name: string): Span {
    const key = constant.dataKey;
    const span = this.#namedData.get(key);
    if (span === undefined) {
      throw new WebGPUError(
        'NotFound',
        `${name}: named data '${key}' must exist; is its .ptd file loaded?`,
      );
    }
    const wanted = countOf(constant.shape) * scalarSize(constant.dtype);
    if (span.size !== wanted) {
      throw new WebGPUError(
        'NotFound',
        `named data '${key}' must have ${wanted} bytes, got ${span.size}`,
      );
    }
    return span;
  }
}

interface Target {
  buffer: GPUBuffer;
  constant: PlanConstant;
  /** Of data that comes in several pieces. */
  hash: ContentHash | undefined;
}

interface Block {
  span: Span;
  targets: Target[];
}

class Upload {
  readonly #gpu: Gpu;
  readonly #options: UploadOptions;
  readonly #blocks = new Map<string, Block>();
  readonly #piece = new Uint8Array(PIECE);
  readonly #scratch = new Uint8Array(PIECE);
  readonly #hashing = new Set<Promise<void>>();
  #inFlight = 0;
  #failed: unknown;

  constructor(gpu: Gpu, options: UploadOptions) {
    this.#gpu = gpu;
    this.#options = options;
  }

  add(span: Span, buffer: GPUBuffer, constant: PlanConstant): void {
    const key = `${span.start} ${span.size}`;
    const block = this.#blocks.get(key) ?? { span, targets: [] };
    this.#blocks.set(key, block);
    const isLong = span.size > PIECE && this.#options.verify;
    const hash = isLong ? new ContentHash(constant.dtype, constant.shape) : undefined;
    block.targets.push({ buffer, constant, hash });
  }

  async run(source: ByteSource): Promise<void> {
    const blocks = [...this.#blocks.values()].sort(
      (a, b) => a.span.start - b.span.start,
    );
    for (const run of runsOf(blocks)) {
      await this.#stream(source, run);
    }
    await this.#settle();
    await Promise.all(this.#hashing);
    this.#throwFailed();
  }

  // Fills blocks that follow each other from one stream.
  async #stream(source: ByteSource, blocks: readonly Block[]): Promise<void> {
    const first = blocks[0]?.span.start ?? 0;
    const last = blocks.at(-1)?.span ?? { start: 0, size: 0 };
    let position = first;
    let at = 0; // the block that is being filled
    let start = 0; // where in it the piece starts
    let filled = 0; // bytes of the piece
    for await (const chunk of source.stream(first, last.start + last.size)) {
      this.#options.signal?.throwIfAborted();
      let rest = chunk;
      while (rest.byteLength > 0) {
        const block = blocks[at];
        if (block === undefined) {
          break;
        }
        const skipped = block.span.start + start + filled - position;
        if (skipped > 0) {
          const step = Math.min(skipped, rest.byteLength);
          rest = rest.subarray(step);
          position += step;
          continue;
        }
        const wanted = Math.min(PIECE, block.span.size - start);
        const taken = rest.subarray(0, wanted - filled);
        this.#piece.set(taken, filled);
        filled += taken.byteLength;
        position += taken.byteLength;
        rest = rest.subarray(taken.byteLength);
        if (filled === wanted) {
          await this.#write(block, start, filled);
          start += filled;
          filled = 0;
          if (start === block.span.size) {
            this.#options.onBytes(start);
            start = 0;
            at++;
          }
        }
      }
    }
    if (at < blocks.length) {
      throw new WebGPUError(
        'AccessFailed',
        `${this.#options.name}: the weights must end at byte ${last.start + last.size}, ` +
          `got ${position}; the file is cut short`,
      );
    }
  }

  async #write(block: Block, start: number, size: number): Promise<void> {
    const bytes = this.#piece.subarray(0, size);
    for (const target of block.targets) {
      this.#verify(target, bytes, start + size === block.span.size);
      const { dtype, storage } = target.constant;
      const count = size / scalarSize(dtype);
      const stored = storageSize(storage);
      const most = Math.floor(PIECE / Math.max(stored, scalarSize(dtype)));
      const before = start / scalarSize(dtype);
      for (let first = 0; first < count; first += most) {
        const length = Math.min(most, count - first);
        const part = bytes.subarray(first * scalarSize(dtype));
        const data = this.#converted(target.constant, part, length);
        const offset = (before + first) * stored;
        await this.#send(target.buffer, offset, data);
      }
    }
    this.#throwFailed();
  }

  #converted(
    constant: PlanConstant,
    bytes: Uint8Array<ArrayBuffer>,
    count: number,
  ): Uint8Array<ArrayBuffer> {
    const { dtype, storage } = constant;
    const size = storedSize(storage, count);
    if (isSameBytes(dtype, storage) && size === count * storageSize(storage)) {
      return bytes.subarray(0, size);
    }
    const target = this.#scratch.subarray(0, size).fill(0);
    const done = toStorage(dtype, storage, bytes, target, count);
    if (done !== count) {
      const view = new DataView(bytes.buffer, bytes.byteOffset);
      throw new WebGPUError(
        'DelegateInvalidCompatibility',
        `int64 values must fit int32, got ${view.getBigInt64(8 * done, true)}`,
      );
    }
    return target;
  }

  async #send(
    buffer: GPUBuffer,
    offset: number,
    data: Uint8Array<ArrayBuffer>,
  ): Promise<void> {
    const { checked } = this.#gpu.guard(`${this.#options.name}: upload`, () => {
      this.#gpu.device.queue.writeBuffer(buffer, offset, data);
    });
    this.#follow(checked);
    this.#inFlight += data.byteLength;
    if (this.#inFlight > IN_FLIGHT) {
      await this.#settle();
    }
  }

  #verify(target: Target, bytes: Uint8Array<ArrayBuffer>, isLast: boolean): void {
    if (!this.#options.verify) {
      return;
    }
    const { dtype, shape, dataKey } = target.constant;
    if (target.hash === undefined) {
      this.#follow(
        contentKey(dtype, shape, bytes).then((found) => this.#compare(dataKey, found)),
      );
      return;
    }
    target.hash.add(bytes);
    if (isLast) {
      this.#compare(dataKey, target.hash.key());
    }
  }

  #compare(wanted: string, found: string): void {
    if (found !== wanted) {
      throw new WebGPUError(
        'DelegateInvalidCompatibility',
        `${this.#options.name}: named data '${wanted}' must have the content that its ` +
          `key is the hash of, got '${found}'; the file is damaged`,
      );
    }
  }

  // What goes on meanwhile; that it failed is told at the next piece.
  #follow(work: Promise<void>): void {
    const followed = work.then(
      () => {
        this.#hashing.delete(followed);
      },
      (error: unknown) => {
        this.#failed ??= error;
      },
    );
    this.#hashing.add(followed);
  }

  #throwFailed(): void {
    if (this.#failed !== undefined) {
      throw this.#failed;
    }
  }

  async #settle(): Promise<void> {
    this.#inFlight = 0;
    try {
      await this.#gpu.device.queue.onSubmittedWorkDone();
    } finally {
      await this.#gpu.checkSoon();
    }
  }
}

/** Blocks that follow each other closely, and do not overlap. */
function runsOf(blocks: readonly Block[]): Block[][] {
  const runs: Block[][] = [];
  let end = -1;
  for (const block of blocks) {
    const { start, size } = block.span;
    const run = runs.at(-1);
    if (run !== undefined && start >= end && start - end <= GAP) {
      run.push(block);
    } else {
      runs.push([block]);
    }
    end = start + size;
  }
  return runs;
}
