"""Plays plans on Dawn, Chrome's WebGPU, whose compiler of WGSL is Tint.

Enters: a plan, and the bytes of its inputs and constants as the GPU holds them.
Leaves: the bytes of its outputs. The driver is one that wgpu has too, so what differs
is the implementation of WebGPU and the compiler.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import drivers
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


def adapter_name(adapter: Any) -> str:
    info = webgpu.WGPUAdapterInfo()
    webgpu.wgpuAdapterGetInfo(adapter, info)
    return str(dawn.from_wgpu_str(info.device))


class Player:
    """Dawn on one driver, the machine's own or, by the name of its adapter, another."""

    def __init__(self, adapter: str) -> None:
        # Of its own: Dawn looks for drivers once per instance.
        self._instance = webgpu.wgpuCreateInstance(dawn.instDesc)
        with drivers.both_found() if adapter else nullcontext(), self._waiting():
            found = request_adapter(webgpu.WGPUBackendType_Vulkan)
            self.features = {
                name
                for name, feature in FEATURES.items()
                if webgpu.wgpuAdapterHasFeature(found, feature)
            }
            wanted = [FEATURES[name] for name in sorted(self.features)]
            self._device = dawn.request_device_sync(found, wanted)
        name = adapter_name(found)
        assert adapter in name.lower(), f"Dawn must play on {adapter}, got {name}"
        self._layouts: dict[tuple[str, ...], tuple[Any, Any]] = {}
        self._pipelines: dict[Pipeline, Any] = {}

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Inside, pydawn waits for this instance."""
        before, dawn.instance = dawn.instance, self._instance
        try:
            yield
        finally:
            dawn.instance = before

    def play(
        self, plan: Plan, inputs: Sequence[bytes], constants: Mapping[int, bytes]
    ) -> list[bytes]:
        """The outputs' bytes; `constants` are by the index of their buffer."""
        with self._waiting():
            return self._play(plan, inputs, constants)

    def _play(
        self, plan: Plan, inputs: Sequence[bytes], constants: Mapping[int, bytes]
    ) -> list[bytes]:
        buffers = [
            dawn.create_buffer(
                self._device,
                spec.size,
                _COPIES | _USAGES.get(spec.role, webgpu.WGPUBufferUsage_Storage),
            )
            for spec in plan.buffers
        ]
        try:
            with self._errors("upload"):
                for index, data in _contents(plan, inputs, constants):
                    dawn.write_buffer(self._device, buffers[index], 0, data)
            self._run(plan, buffers)
            with self._errors("read-back"):
                return [
                    bytes(dawn.read_buffer(self._device, buffers[port.buffer]))[
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

    def _run(self, plan: Plan, buffers: Sequence[Any]) -> None:
        pipelines = [self._pipeline(spec) for spec in plan.pipelines]
        groups = []
        with self._errors("dispatch"):
            encoder = dawn.create_command_encoder(self._device)
            encoding = dawn.begin_compute_pass(encoder)
            for step in plan.dispatches:
                access = plan.pipelines[step.pipeline].access
                groups.append(self._group(step, access, plan, buffers))
                dawn.set_pipeline(encoding, pipelines[step.pipeline])
                dawn.set_bind_group(encoding, groups[-1])
                dawn.dispatch_workgroups(encoding, *step.groups)
            dawn.end_compute_pass(encoding)
            commands = dawn.command_encoder_finish(encoder)
            dawn.submit(self._device, [commands])
            dawn.sync(self._device)
        webgpu.wgpuCommandBufferRelease(commands)
        webgpu.wgpuComputePassEncoderRelease(encoding)
        webgpu.wgpuCommandEncoderRelease(encoder)
        for group in groups:
            webgpu.wgpuBindGroupRelease(group)

    def _group(
        self,
        step: Dispatch,
        access: tuple[str, ...],
        plan: Plan,
        buffers: Sequence[Any],
    ) -> Any:
        entries = []
        for binding, index in enumerate(step.buffers):
            if access[binding] == "uniform":
                offset, size = step.params, step.params_size
            else:
                offset, size = step.bound(binding, plan.buffers[index].size)
            resource = {"buffer": buffers[index], "offset": offset, "size": size}
            entries.append({"binding": binding, "resource": resource})
        return dawn.create_bind_group(self._device, self._layout(access)[0], entries)

    @contextmanager
    def _errors(self, where: str) -> Iterator[None]:
        """Raises what Dawn objects to, which it would only print."""
        webgpu.wgpuDevicePushErrorScope(self._device, webgpu.WGPUErrorFilter_Validation)
        yield
        message = dawn.pop_error(self._device)
        assert not message, f"Dawn: {where}: {message}"

    def _layout(self, access: tuple[str, ...]) -> tuple[Any, Any]:
        if access in self._layouts:
            return self._layouts[access]
        entries = [
            {
                "binding": index,
                "visibility": webgpu.WGPUShaderStage_Compute,
                "buffer": {"type": _KINDS[kind]},
            }
            for index, kind in enumerate(access)
        ]
        group = dawn.create_bind_group_layout(self._device, entries)
        self._layouts[access] = (
            group,
            dawn.create_pipeline_layout(self._device, [group]),
        )
        return self._layouts[access]

    def _pipeline(self, spec: Pipeline) -> Any:
        if spec in self._pipelines:
            return self._pipelines[spec]
        # Dawn, as browsers, wants the extension by name, which naga does not know.
        prefix = "enable subgroups;\n" if "subgroup" in spec.wgsl else ""
        module = dawn.create_shader_module(self._device, prefix + spec.wgsl)
        made = dawn.create_compute_pipeline(
            self._device,
            self._layout(spec.access)[1],
            {"module": module, "entry_point": "main"},
        )
        webgpu.wgpuShaderModuleRelease(module)
        self._pipelines[spec] = made
        return made


# By the driver's name as `drivers` has it.
on = functools.cache(Player)


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
