"""The two compilers of WGSL: naga, which wgpu uses, and Tint, which Chrome uses.

Enters: the text of a kernel. Leaves: nothing, or CompileError with the message.
Tint comes with Dawn, whose Null backend compiles without any driver. A text that a
compiler has accepted is not compiled again, by any process: what it says depends on
the text, its own version and the device's features. `make clean` forgets them.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
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


# An empty file for every text that was accepted, named by what decided that.
_ACCEPTED = Path(__file__).parents[1] / "build" / "test-cache" / "wgsl"


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


def _once(
    version: Callable[[], str],
) -> Callable[[Callable[[str], None]], Callable[[str], None]]:
    """Has a compiler take each text that it accepts once per version of it."""

    def decorate(compile_text: Callable[[str], None]) -> Callable[[str], None]:
        @functools.cache
        @functools.wraps(compile_text)
        def compile_once(text: str) -> None:
            known = "\0".join((compile_text.__name__, version(), text))
            name = hashlib.sha256(known.encode()).hexdigest()
            path = _ACCEPTED / name[:2] / name
            if not path.exists():
                compile_text(text)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()

        return compile_once

    return decorate


@functools.cache
def _tint_version() -> str:
    return importlib.metadata.version("dawn-python")


@functools.cache
def _naga_version() -> str:
    """Also the device, because naga refuses what that has no feature for."""
    return f"{wgpu.__version__} {device.get_device().caps}"


@_once(_tint_version)
def compile_tint(text: str) -> None:
    # Browsers ask for the extension by name, which naga does not know yet.
    prefix = "enable subgroups;\n" if "subgroup" in text else ""
    try:
        module = dawn.create_shader_module(_dawn_device(), prefix + text)
    except RuntimeError as error:
        raise CompileError(f"Tint: {error}\n{prefix}{text}") from None
    webgpu.wgpuShaderModuleRelease(module)


@_once(_naga_version)
def compile_naga(text: str) -> None:
    try:
        device.get_device().raw.create_shader_module(code=text)
    except wgpu.GPUError as error:
        raise CompileError(f"naga: {error}\n{text}") from None


@functools.cache
def _dawn_device() -> Any:
    adapter = request_adapter(webgpu.WGPUBackendType_Null)
    return dawn.request_device_sync(adapter, list(FEATURES.values()))
