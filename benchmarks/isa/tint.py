"""Our kernels compiled by Tint, as Chrome does, on the Vulkan device that Dawn finds.

With the bounds checks and the counters of loops that a page cannot switch off.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from executorch_webgpu.plan.plan import Pipeline


def compiler() -> Callable[[Pipeline, str], None]:
    """A function that compiles a kernel for a case."""
    os.environ["BACKEND_TYPE"] = "Vulkan"
    from pydawn import utils as dawn
    from pydawn import webgpu

    kinds = {
        "read": webgpu.WGPUBufferBindingType_ReadOnlyStorage,
        "write": webgpu.WGPUBufferBindingType_Storage,
        "uniform": webgpu.WGPUBufferBindingType_Uniform,
    }
    adapter = dawn.request_adapter_sync(webgpu.WGPUPowerPreference_HighPerformance)
    wanted = (webgpu.WGPUFeatureName_ShaderF16, webgpu.WGPUFeatureName_Subgroups)
    has = webgpu.wgpuAdapterHasFeature
    device = dawn.request_device_sync(adapter, [x for x in wanted if has(adapter, x)])

    def compile_kernel(spec: Pipeline, case: str) -> None:
        entries = [
            {
                "binding": binding,
                "visibility": webgpu.WGPUShaderStage_Compute,
                "buffer": {"type": kinds[access]},
            }
            for binding, access in enumerate(spec.access)
        ]
        # Dawn wants the extension by name, which naga does not know.
        prefix = "enable subgroups;\n" if "subgroup" in spec.wgsl else ""
        webgpu.wgpuDevicePushErrorScope(device, webgpu.WGPUErrorFilter_Validation)
        group = dawn.create_bind_group_layout(device, entries)
        layout = dawn.create_pipeline_layout(device, [group])
        module = dawn.create_shader_module(device, prefix + spec.wgsl)
        stage = {"module": module, "entry_point": "main"}
        dawn.create_compute_pipeline(device, layout, stage)
        if message := dawn.pop_error(device):
            raise RuntimeError(f"{case}: Dawn must take {spec.label}, got: {message}")

    return compile_kernel
