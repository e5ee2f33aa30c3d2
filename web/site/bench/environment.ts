/** Where it was measured: the browser and the GPU, as far as they say. */

import type { Sizes } from './cases';

interface Brands {
  userAgentData?: {
    brands: { brand: string; version: string }[];
    platform: string;
    mobile: boolean;
  };
  deviceMemory?: number;
}

export function browserFacts(): Record<string, unknown> {
  const { userAgent, hardwareConcurrency, language } = navigator;
  const { userAgentData, deviceMemory } = navigator as Navigator & Brands;
  return {
    userAgent,
    brands: userAgentData?.brands ?? [],
    platform: userAgentData?.platform ?? navigator.platform,
    mobile: userAgentData?.mobile ?? null,
    hardwareConcurrency,
    deviceMemory: deviceMemory ?? null,
    language,
  };
}

const LIMITS = [
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxStorageBuffersPerShaderStage',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
] as const;

export function adapterFacts({
  info,
  features,
  limits,
}: GPUAdapter): Record<string, unknown> {
  return {
    vendor: info.vendor,
    architecture: info.architecture,
    device: info.device,
    description: info.description,
    isFallback: isSoftware(info),
    features: [...features].sort(),
    limits: Object.fromEntries(LIMITS.map((name) => [name, limits[name]])),
  };
}

/** Whether the processor draws what a GPU should. */
export function isSoftware(info: GPUAdapterInfo): boolean {
  const names = [info.vendor, info.architecture, info.description].join(' ');
  return (
    info.isFallbackAdapter || /swiftshader|llvmpipe|lavapipe|software|warp/i.test(names)
  );
}

export function sizesFor(info: GPUAdapterInfo): Sizes {
  return isSoftware(info) ? 'small' : 'full';
}
