/**
 * A GPU device and what all modules on it share: pipelines, and weights that are the
 * same.
 *
 * Modules that ask for the same adapter share one device; it is destroyed with the last
 * of them. A caller's own device is used as it is and never destroyed.
 */

import { WebGPUError } from '../errors';
import type { PlanProfile } from '../file/plans';
import { capsOf, type DeviceCaps } from '../player/profile';
import { turn } from '../turn';
import { LOST } from './buffer_place';
import type { Pipeline } from './pipelines';

/** A buffer of weights, and how many modules have it. */
export interface SharedBuffer {
  buffer: GPUBuffer;
  users: number;
}

const FEATURES = ['shader-f16', 'subgroups', 'timestamp-query'] as const;

/** What a device of the adapter can be asked for. */
export function adapterCaps(adapter: GPUAdapter): DeviceCaps {
  // A smaller alignment is not asked for: all plans keep to the default.
  return { ...capsOf(adapter, adapter.info), offsetAlign: 256 };
}

/** The limits that some profiles need, as WebGPU names them. */
export function neededLimits(profiles: readonly PlanProfile[]): Record<string, number> {
  const most = (get: (profile: PlanProfile) => number): number =>
    profiles.reduce((found, profile) => Math.max(found, get(profile)), 0);
  return {
    maxStorageBuffersPerShaderStage: most((p) => p.maxStorageBuffers),
    maxStorageBufferBindingSize: most((p) => p.maxBinding),
    maxBufferSize: most((p) => p.maxBuffer),
    maxComputeWorkgroupsPerDimension: most((p) => p.maxWorkgroups),
    maxComputeInvocationsPerWorkgroup: most((p) => p.maxInvocations),
    maxComputeWorkgroupSizeX: most((p) => p.maxInvocations),
    maxComputeWorkgroupStorageSize: most((p) => p.workgroupMemory),
  };
}

/** The adapter's name, for messages. */
export function adapterName(info: GPUAdapterInfo): string {
  const parts = [info.vendor, info.architecture, info.device, info.description];
  return [...new Set(parts.filter((part) => part))].join(' ') || 'a GPU';
}

/** Asks the browser for an adapter; throws what to do where there is none. */
export async function requestAdapter(
  options: GPURequestAdapterOptions = {},
): Promise<GPUAdapter> {
  const gpu = (globalThis.navigator as Navigator | undefined)?.gpu;
  if (gpu === undefined) {
    const secure = globalThis.isSecureContext === false;
    throw new WebGPUError(
      'NotSupported',
      secure
        ? 'WebGPU: the page must come from https or localhost, got an insecure page'
        : 'WebGPU: the browser must have WebGPU, got none; use a current Chrome, Edge, ' +
            'Safari or Firefox',
    );
  }
  const adapter = await gpu.requestAdapter({
    powerPreference: 'high-performance',
    ...options,
  });
  if (adapter === null) {
    throw new WebGPUError(
      'DelegateInvalidHandle',
      'there must be a GPU adapter, got none; update the browser and the graphics ' +
        'driver, or switch on hardware acceleration in its settings',
    );
  }
  return adapter;
}

/** The first error of some scopes, as an error that says where. */
function failure(where: string, found: GPUError): WebGPUError {
  if (found instanceof GPUOutOfMemoryError) {
    return new WebGPUError(
      'MemoryAllocationFailed',
      `${where}: out of GPU memory: ${found.message}`,
    );
  }
  // Below the first line is what was done meanwhile.
  const cause = found.message.split('\n', 1)[0];
  const rest = found.message === cause ? '' : `\n${found.message}`;
  return new WebGPUError('DelegateInvalidHandle', `${where}: ${cause}${rest}`);
}

export class Gpu {
  readonly pipelines = new Map<string, Promise<Pipeline>>();
  readonly layouts = new Map<string, GPUBindGroupLayout>();
  readonly constants = new Map<string, SharedBuffer>();
  readonly name: string;
  /** Told once, with why. */
  readonly lost: Promise<GPUDeviceLostInfo>;
  #lost: GPUDeviceLostInfo | undefined;
  #users = 0;

  private constructor(
    readonly device: GPUDevice,
    readonly info: GPUAdapterInfo,
    /** Whether it is a caller's own. */
    readonly isBorrowed: boolean,
  ) {
    this.name = adapterName(info);
    this.lost = device.lost.then((info) => {
      this.#lost = info;
      forget(this);
      return info;
    });
  }

  /** A caller's own device. */
  static borrow(device: GPUDevice): Gpu {
    let gpu = borrowed.get(device);
    if (gpu === undefined) {
      gpu = new Gpu(device, device.adapterInfo, true);
      borrowed.set(device, gpu);
    }
    gpu.#users++;
    return gpu;
  }

  /** A device that fits some profiles: one that is there, or a new one. */
  static async get(
    adapter: GPUAdapter,
    key: string,
    profiles: readonly PlanProfile[],
  ): Promise<Gpu> {
    const limits = neededLimits(profiles);
    const found = shared.get(key)?.find((gpu) => gpu.#has(limits));
    if (found !== undefined) {
      found.#users++;
      return found;
    }
    let device: GPUDevice;
    try {
      device = await adapter.requestDevice({
        label: 'executorch-webgpu',
        requiredFeatures: FEATURES.filter((feature) => adapter.features.has(feature)),
        requiredLimits: limits,
      });
    } catch (error) {
      throw new WebGPUError(
        'DelegateInvalidHandle',
        `${adapterName(adapter.info)}: a device must be made, got none: ${error}`,
        { cause: error },
      );
    }
    const gpu = new Gpu(device, adapter.info, false);
    gpu.#users++;
    shared.set(key, [...(shared.get(key) ?? []), gpu]);
    return gpu;
  }

  #has(limits: Record<string, number>): boolean {
    const own = this.device.limits as unknown as Record<string, number>;
    return (
      this.#lost === undefined &&
      Object.entries(limits).every(([name, wanted]) => (own[name] ?? 0) >= wanted)
    );
  }

  get isLost(): boolean {
    return this.#lost !== undefined;
  }

  /** Throws if the device is lost. */
  check(): void {
    if (this.#lost !== undefined) {
      const { reason, message } = this.#lost;
      const why = reason === 'destroyed' || message === '' ? '' : `: ${message}`;
      throw new WebGPUError('DelegateInvalidHandle', LOST + why);
    }
  }

  /** Throws if the device is lost, even if that has only just happened. */
  async checkSoon(): Promise<void> {
    await Promise.race([this.lost, turn()]);
    this.check();
  }

  /**
   * Runs `work`, which must not wait, and tells later whether the GPU took it. A scope
   * that were open across a wait would catch what others do.
   */
  guard<T>(where: string, work: () => T): { made: T; checked: Promise<void> } {
    this.check();
    const { device } = this;
    device.pushErrorScope('out-of-memory');
    device.pushErrorScope('validation');
    let scopes: Promise<(GPUError | null)[]>;
    let made: T;
    try {
      made = work();
    } finally {
      scopes = Promise.all([device.popErrorScope(), device.popErrorScope()]);
      scopes.catch(() => undefined);
    }
    const checked = scopes.then(
      ([invalid, memory]) => {
        // Out of memory makes all invalid that follows.
        const found = memory ?? invalid;
        if (found) {
          throw failure(where, found);
        }
      },
      () => {
        throw new WebGPUError('DelegateInvalidHandle', `${where}: ${LOST}`);
      },
    );
    checked.catch(() => undefined);
    return { made, checked };
  }

  /** One module less has the device. */
  release(): void {
    this.#users--;
    if (this.#users === 0) {
      forget(this);
      if (!this.isBorrowed) {
        this.device.destroy();
      }
    }
  }
}

const shared = new Map<string, Gpu[]>();
const borrowed = new WeakMap<GPUDevice, Gpu>();

function forget(gpu: Gpu): void {
  for (const [key, all] of shared) {
    shared.set(
      key,
      all.filter((each) => each !== gpu),
    );
  }
}

/** The buffers of one module, so that none is left behind. */
export class Memory {
  readonly #buffers = new Map<GPUBuffer, number>();
  #bytes = 0;

  constructor(readonly gpu: Gpu) {}

  get bytes(): number {
    return this.#bytes;
  }

  /** To be called within `guard`, which hears whether there was room. */
  create(label: string, size: number, usage: GPUBufferUsageFlags): GPUBuffer {
    const most = this.gpu.device.limits.maxBufferSize;
    if (size > most) {
      throw new WebGPUError(
        'MemoryAllocationFailed',
        `${label}: max-buffer-size of ${this.gpu.name} is ${most} bytes, got ${size}`,
      );
    }
    const buffer = this.gpu.device.createBuffer({ label, size, usage });
    this.#buffers.set(buffer, size);
    this.#bytes += size;
    return buffer;
  }

  /** Leaves a buffer to others. */
  give(buffer: GPUBuffer): void {
    this.#bytes -= this.#buffers.get(buffer) ?? 0;
    this.#buffers.delete(buffer);
  }

  destroy(buffer: GPUBuffer): void {
    this.give(buffer);
    buffer.destroy();
  }

  destroyAll(): void {
    for (const buffer of this.#buffers.keys()) {
      buffer.destroy();
    }
    this.#buffers.clear();
    this.#bytes = 0;
  }
}
