/** Which of a file's profiles a device gets. */

import { WebGPUError } from '../errors';
import type { PlanProfile, Plans } from '../file/plans';

/** What a device, or an adapter, offers of what profiles ask for. */
export interface DeviceCaps {
  f16: boolean;
  subgroups: boolean;
  /** Whether it computes on the host's processor. */
  isCpu: boolean;
  maxBinding: number;
  maxBuffer: number;
  maxStorageBuffers: number;
  maxWorkgroups: number;
  maxInvocations: number;
  workgroupMemory: number;
  offsetAlign: number;
}

/** What of a device may be used. */
export interface Allowed {
  f16: boolean;
  subgroups: boolean;
  cpuKernels: boolean;
}

/** What an adapter, or a device, says that it can do. */
export function capsOf(
  { limits, features }: Pick<GPUDevice, 'limits' | 'features'>,
  info: GPUAdapterInfo,
): DeviceCaps {
  return {
    f16: features.has('shader-f16'),
    subgroups: features.has('subgroups'),
    isCpu: info.isFallbackAdapter,
    maxBinding: limits.maxStorageBufferBindingSize,
    maxBuffer: limits.maxBufferSize,
    maxStorageBuffers: limits.maxStorageBuffersPerShaderStage,
    maxWorkgroups: limits.maxComputeWorkgroupsPerDimension,
    maxInvocations: limits.maxComputeInvocationsPerWorkgroup,
    workgroupMemory: limits.maxComputeWorkgroupStorageSize,
    offsetAlign: limits.minStorageBufferOffsetAlignment,
  };
}

/** What a device lacks for a profile, with both numbers; '' if it fits. */
export function shortcoming(
  profile: PlanProfile,
  caps: DeviceCaps,
  allowed: Allowed,
): string {
  const features = [
    ['cpu-adapter', profile.isCpu, caps.isCpu, allowed.cpuKernels],
    ['shader-f16', profile.f16, caps.f16, allowed.f16],
    ['subgroups', profile.subgroups, caps.subgroups, allowed.subgroups],
  ] as const;
  for (const [name, isWanted, isThere, isAllowed] of features) {
    if (isWanted && !(isThere && isAllowed)) {
      return name + (isThere ? ', got it switched off' : ', got none');
    }
  }
  const limits = [
    [
      'max-storage-buffers-per-shader-stage',
      profile.maxStorageBuffers,
      caps.maxStorageBuffers,
    ],
    ['max-storage-buffer-binding-size', profile.maxBinding, caps.maxBinding],
    ['max-buffer-size', profile.maxBuffer, caps.maxBuffer],
    ['max-compute-workgroups-per-dimension', profile.maxWorkgroups, caps.maxWorkgroups],
    [
      'max-compute-invocations-per-workgroup',
      profile.maxInvocations,
      caps.maxInvocations,
    ],
    [
      'max-compute-workgroup-storage-size',
      profile.workgroupMemory,
      caps.workgroupMemory,
    ],
  ] as const;
  for (const [name, wanted, got] of limits) {
    if (got < wanted) {
      return `${name} of ${wanted}, got ${got}`;
    }
  }
  if (caps.offsetAlign === 0 || profile.offsetAlign % caps.offsetAlign !== 0) {
    return (
      `min-storage-buffer-offset-alignment of at most ${profile.offsetAlign}, ` +
      `got ${caps.offsetAlign}`
    );
  }
  return '';
}

/**
 * The first profile that the device fits with what is allowed. Throws, with the limit
 * that the last one does not meet, if there is none.
 *
 * @param device - The device's name, for the message.
 */
export function chooseProfile(
  plans: Plans,
  caps: DeviceCaps,
  device: string,
  allowed: Allowed,
): PlanProfile {
  let problem = '';
  let name = '';
  for (const profile of plans.profiles) {
    problem = shortcoming(profile, caps, allowed);
    if (problem === '') {
      return profile;
    }
    name = profile.name;
  }
  throw new WebGPUError(
    'NotSupported',
    `${device}: the device must have, for profile ${name}, ${problem}`,
  );
}
