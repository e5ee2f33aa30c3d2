/** Elements of a tensor in a GPU buffer, and how they come to host memory. */

import { WebGPUError } from '../errors';
import { Storage } from '../file/plans';
import { fromStorage, storedSize } from '../player/convert';
import {
  asData,
  type BufferStorage,
  type Place,
  type TensorData,
  type TensorType,
  typeInfo,
} from '../tensor';

export const STORAGES: Record<BufferStorage, Storage> = {
  f32: Storage.F32,
  f16: Storage.F16,
  i32: Storage.I32,
};

export const STORAGE_NAMES: Record<Storage, BufferStorage> = {
  [Storage.F32]: 'f32',
  [Storage.F16]: 'f16',
  [Storage.I32]: 'i32',
};

/** What is told where a device is gone, as Python and C++ tell it. */
export const LOST =
  'the GPU device must be alive, got lost; load the method again for a new one';

/** The bytes of a mapped copy of a buffer's start. */
export async function readBytes(
  device: GPUDevice,
  buffer: GPUBuffer,
  size: number,
): Promise<Uint8Array<ArrayBuffer>> {
  const staging = device.createBuffer({
    label: 'staging',
    size,
    usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
  });
  try {
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, staging, 0, size);
    device.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ);
    return new Uint8Array(staging.getMappedRange().slice(0));
  } catch (error) {
    const lost = await Promise.race([device.lost, undefined]);
    throw new WebGPUError(
      'DelegateInvalidHandle',
      lost === undefined ? `Tensor: its buffer must be readable: ${error}` : LOST,
      { cause: error },
    );
  } finally {
    staging.destroy();
  }
}

interface BufferPlaceOptions {
  device: GPUDevice;
  buffer: GPUBuffer;
  storage: BufferStorage;
  /** What frees the buffer; undefined for a caller's own. */
  free?: () => void;
}

/** Elements in a buffer, which several tensors may have. */
export class BufferPlace implements Place {
  readonly device: GPUDevice;
  readonly buffer: GPUBuffer;
  readonly storage: BufferStorage;
  /** Rejects if what filled the buffer failed. */
  filled: Promise<void> | undefined;
  /** The elements, if they came together with a status. */
  prefetched: TensorData | undefined;
  readonly remote = undefined;
  readonly #free: (() => void) | undefined;
  #users = 1;

  constructor(options: BufferPlaceOptions) {
    this.device = options.device;
    this.buffer = options.buffer;
    this.storage = options.storage;
    this.#free = options.free;
  }

  get gpu(): BufferPlace {
    return this;
  }

  async read(type: TensorType, count: number): Promise<TensorData> {
    if (this.prefetched?.length === count) {
      return this.prefetched;
    }
    const elements = new Uint8Array(count * typeInfo(type).bytes);
    if (count > 0) {
      const storage = STORAGES[this.storage];
      const size = storedSize(storage, count);
      const reading = readBytes(this.device, this.buffer, size);
      const [bytes] = await Promise.all([reading, this.filled]);
      fromStorage(typeInfo(type).dtype, storage, bytes, elements, count);
    }
    return asData(type, elements);
  }

  share(): void {
    this.#users++;
  }

  release(): void {
    this.#users--;
    if (this.#users === 0) {
      this.#free?.();
    }
  }
}
