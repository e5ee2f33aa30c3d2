/** Compute pipelines, compiled beside each other and shared by text. */

import { WebGPUError } from '../errors';
import { Access } from '../file/plans';
import type { Gpu } from './device';

export interface Pipeline {
  handle: GPUComputePipeline;
  layout: GPUBindGroupLayout;
}

const TYPES: Record<Access, GPUBufferBindingType> = {
  [Access.Read]: 'read-only-storage',
  [Access.ReadWrite]: 'storage',
  [Access.Uniform]: 'uniform',
};

// Explicit, because an automatic layout drops bindings that a kernel ignores, and is
// never the same as another's.
function layoutOf(gpu: Gpu, access: readonly Access[]): GPUBindGroupLayout {
  const key = access.join();
  let layout = gpu.layouts.get(key);
  if (layout === undefined) {
    layout = gpu.device.createBindGroupLayout({
      entries: access.map((each, binding) => ({
        binding,
        visibility: GPUShaderStage.COMPUTE,
        buffer: { type: TYPES[each] },
      })),
    });
    gpu.layouts.set(key, layout);
  }
  return layout;
}

export interface KernelText {
  label: string;
  text: string;
  access: readonly Access[];
  /** The op that needs it first, for messages. */
  where: string;
}

/** The pipeline of a kernel: one for all kernels of the same text. */
export function pipeline(gpu: Gpu, kernel: KernelText): Promise<Pipeline> {
  const key = `${kernel.access.join()}\n${kernel.text}`;
  let made = gpu.pipelines.get(key);
  if (made === undefined) {
    made = compile(gpu, kernel);
    gpu.pipelines.set(key, made);
    made.catch(() => gpu.pipelines.delete(key));
  }
  return made;
}

async function compile(gpu: Gpu, kernel: KernelText): Promise<Pipeline> {
  const { label, text, access, where } = kernel;
  const { made, checked } = gpu.guard(where, () => {
    const layout = layoutOf(gpu, access);
    const module = gpu.device.createShaderModule({ label, code: text });
    return { layout, module };
  });
  try {
    const handle = await gpu.device.createComputePipelineAsync({
      label,
      layout: gpu.device.createPipelineLayout({ bindGroupLayouts: [made.layout] }),
      compute: { module: made.module, entryPoint: 'main' },
    });
    await checked;
    return { handle, layout: made.layout };
  } catch (error) {
    gpu.check();
    const info = await made.module.getCompilationInfo();
    const found = info.messages.find((message) => message.type === 'error');
    const cause = found === undefined ? String(error) : found.message;
    const line = found === undefined ? '' : ` (line ${found.lineNum})`;
    throw new WebGPUError('DelegateInvalidHandle', `${where}: ${cause}${line}`, {
      cause: error,
    });
  }
}
