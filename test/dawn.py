"""Plays plans on Dawn, Chrome's WebGPU, whose compiler of WGSL is Tint.

Enters: a plan, and the bytes of its inputs and constants as the GPU holds them.
Leaves: the bytes of its outputs. The driver is the one that wgpu has too, so what
differs is the implementation of WebGPU and the compiler.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pydawn import utils as dawn
from pydawn import webgpu

from executorch_webgpu.plan.plan import Dispatch, Pipeline, Plan, Role

_USAGES = {
    Role.PARAMS: webgpu.WGPUBufferUsage_Uniform,
}
_COPIES = webgpu.WGPUBufferUsage_CopySrc | webgpu.WGPUBufferUsage_CopyDst
_KINDS = {
    "read": webgpu.WGPUBufferBindingType_ReadOnlyStorage,
    "write": webgpu.WGPUBufferBindingType_Storage,
    "uniform": webgpu.WGPUBufferBindingType_Uniform,
}
FEATURES = {
    "f16": webgpu.WGPUFeatureName_ShaderF16,
    "subgroups": webgpu.WGPUFeatureName_Subgroups,
}


def request_adapter(backend: int) -> Any:
    """Dawn's adapter for a backend; AssertionError if it has none."""
    options = webgpu.WGPURequestAdapterOptions()
    options.backendType = backend
    found: list[Any] = []
    info = webgpu.WGPURequestAdapterCallbackInfo()
    info.mode = webgpu.WGPUCallbackMode_WaitAnyOnly
    info.callback = webgpu.WGPURequestAdapterCallback(
        lambda status, adapter, message, data: found.append(adapter)
    )
    dawn.wait(webgpu.wgpuInstanceRequestAdapterF(dawn.instance, options, info))
    assert found[0], "Dawn has no such adapter"
    return found[0]


@functools.cache
def _adapter() -> Any:
    return request_adapter(webgpu.WGPUBackendType_Vulkan)


def features() -> set[str]:
    """Those of `FEATURES` that the driver has."""
    return {
        name
        for name, feature in FEATURES.items()
        if webgpu.wgpuAdapterHasFeature(_adapter(), feature)
    }


@functools.cache
def _device() -> Any:
    return dawn.request_device_sync(
        _adapter(), [FEATURES[name] for name in sorted(features())]
    )


@contextmanager
def _errors(where: str) -> Iterator[None]:
    """Raises what Dawn objects to, which it would only print."""
    webgpu.wgpuDevicePushErrorScope(_device(), webgpu.WGPUErrorFilter_Validation)
    yield
    message = dawn.pop_error(_device())
    assert not message, f"Dawn: {where}: {message}"


@functools.cache
def _layout(access: tuple[str, ...]) -> tuple[Any, Any]:
    entries = [
        {
            "binding": index,
            "visibility": webgpu.WGPUShaderStage_Compute,
            "buffer": {"type": _KINDS[kind]},
        }
        for index, kind in enumerate(access)
    ]
    group = dawn.create_bind_group_layout(_device(), entries)
    return group, dawn.create_pipeline_layout(_device(), [group])


@functools.cache
def _pipeline(spec: Pipeline) -> Any:
    # Dawn, as browsers, wants the extension by name, which naga does not know.
    prefix = "enable subgroups;\n" if "subgroup" in spec.wgsl else ""
    module = dawn.create_shader_module(_device(), prefix + spec.wgsl)
    made = dawn.create_compute_pipeline(
        _device(),
        _layout(spec.access)[1],
        {"module": module, "entry_point": "main"},
    )
    webgpu.wgpuShaderModuleRelease(module)
    return made


def play(
    plan: Plan, inputs: Sequence[bytes], constants: Mapping[int, bytes]
) -> list[bytes]:
    """The outputs' bytes; `constants` are by the index of their buffer."""
    buffers = [
        dawn.create_buffer(
            _device(),
            spec.size,
            _COPIES | _USAGES.get(spec.role, webgpu.WGPUBufferUsage_Storage),
        )
        for spec in plan.buffers
    ]
    try:
        with _errors("upload"):
            for index, data in _contents(plan, inputs, constants):
                dawn.write_buffer(_device(), buffers[index], 0, data)
        _run(plan, buffers)
        with _errors("read-back"):
            return [
                bytes(dawn.read_buffer(_device(), buffers[port.buffer]))[
                    : port.numel * port.storage.size
                ]
                if port.numel
                else b""
                for port in plan.outputs
            ]
    finally:
        for buffer in buffers:
            webgpu.wgpuBufferDestroy(buffer)
            webgpu.wgpuBufferRelease(buffer)


def _contents(
    plan: Plan, inputs: Sequence[bytes], constants: Mapping[int, bytes]
) -> Iterator[tuple[int, bytes]]:
    for port, data in zip(plan.inputs, inputs, strict=True):
        if port.buffer >= 0 and data:
            yield port.buffer, data + bytes(-len(data) % 4)
    yield from constants.items()
    for index, spec in enumerate(plan.buffers):
        if spec.role is Role.PARAMS and plan.params:
            yield index, plan.params


def _run(plan: Plan, buffers: Sequence[Any]) -> None:
    pipelines = [_pipeline(spec) for spec in plan.pipelines]
    groups = []
    with _errors("dispatch"):
        encoder = dawn.create_command_encoder(_device())
        encoding = dawn.begin_compute_pass(encoder)
        for step in plan.dispatches:
            access = plan.pipelines[step.pipeline].access
            groups.append(_group(step, access, plan, buffers))
            dawn.set_pipeline(encoding, pipelines[step.pipeline])
            dawn.set_bind_group(encoding, groups[-1])
            dawn.dispatch_workgroups(encoding, *step.groups)
        dawn.end_compute_pass(encoding)
        commands = dawn.command_encoder_finish(encoder)
        dawn.submit(_device(), [commands])
        dawn.sync(_device())
    webgpu.wgpuCommandBufferRelease(commands)
    webgpu.wgpuComputePassEncoderRelease(encoding)
    webgpu.wgpuCommandEncoderRelease(encoder)
    for group in groups:
        webgpu.wgpuBindGroupRelease(group)


def _group(
    step: Dispatch, access: tuple[str, ...], plan: Plan, buffers: Sequence[Any]
) -> Any:
    entries = []
    for binding, index in enumerate(step.buffers):
        if access[binding] == "uniform":
            offset, size = step.params, step.params_size
        else:
            offset, size = step.bound(binding, plan.buffers[index].size)
        resource = {"buffer": buffers[index], "offset": offset, "size": size}
        entries.append({"binding": binding, "resource": resource})
    return dawn.create_bind_group(_device(), _layout(access)[0], entries)
