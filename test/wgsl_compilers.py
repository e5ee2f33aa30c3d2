"""The two compilers of WGSL: naga, which wgpu uses, and Tint, which Chrome uses.

Enters: the text of a kernel. Leaves: nothing, or CompileError with the message.
Tint comes with Dawn, whose Null backend compiles without any driver. Texts that
were compiled once are not compiled again.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import wgpu
from dawn import FEATURES, request_adapter
from pydawn import utils as dawn
from pydawn import webgpu

from executorch_webgpu import ir
from executorch_webgpu.ir import serialize
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.plan import Pipeline
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.runtime import device

_CPU_CAPS = replace(AOT_CAPS, is_cpu=True, max_storage_buffers=10)

# Devices whose kernels differ: op functions choose by these capabilities.
CAPS = {
    "a browser's GPU": AOT_CAPS,
    "a GPU without f16": replace(AOT_CAPS, f16=False),
    "a GPU with subgroups": replace(AOT_CAPS, subgroups=True),
    "SwiftShader": replace(_CPU_CAPS, f16=False, name="SwiftShader"),
    "llvmpipe": replace(
        _CPU_CAPS, subgroups=True, name="llvmpipe (LLVM 19.1.7, 256 bits)"
    ),
}


class CompileError(AssertionError):
    """A compiler's message, with the text it refers to."""


def kernels_of(graph: ir.Graph) -> Iterator[tuple[str, Pipeline]]:
    """Every kernel of a graph on every kind of device, with the device's name."""
    for name, caps in CAPS.items():
        planner = Planner(graph, caps)
        plans = [planner.upper_bound()]
        if graph.symbols:
            plans.append(planner.lower_bound())
        for plan in plans:
            for pipeline in plan.pipelines:
                yield name, pipeline


def check_kernels(blob: bytes) -> None:
    """Compiles every kernel of a delegate with both compilers.

    naga refuses what the adapter lacks: without f16 there, nothing is compiled.
    """
    if not device.get_device().caps.f16:
        return
    for where, pipeline in kernels_of(serialize.read(blob)):
        try:
            compile_tint(pipeline.wgsl)
            compile_naga(pipeline.wgsl)
        except CompileError as error:
            raise CompileError(f"{pipeline.label} for {where}: {error}") from None


@functools.cache
def compile_tint(text: str) -> None:
    # Browsers ask for the extension by name, which naga does not know yet.
    prefix = "enable subgroups;\n" if "subgroup" in text else ""
    try:
        module = dawn.create_shader_module(_dawn_device(), prefix + text)
    except RuntimeError as error:
        raise CompileError(f"Tint: {error}\n{prefix}{text}") from None
    webgpu.wgpuShaderModuleRelease(module)


@functools.cache
def compile_naga(text: str) -> None:
    try:
        device.get_device().raw.create_shader_module(code=text)
    except wgpu.GPUError as error:
        raise CompileError(f"naga: {error}\n{text}") from None


@functools.cache
def _dawn_device() -> Any:
    adapter = request_adapter(webgpu.WGPUBackendType_Null)
    return dawn.request_device_sync(adapter, list(FEATURES.values()))
