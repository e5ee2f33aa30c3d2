"""The process's GPU device: what it can do and what has been made on it.

Enters: the adapters of this machine. Leaves: one `Device` that all delegates share,
with its compiled pipelines, the constants that delegates share, and a count of every
GPU object; closing a delegate takes the counts back to where they were, but for the
pipelines that were used last. wgpu is imported only when a device is asked for.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from .. import _shim, options
from ..errors import DeviceError, LimitExceeded, NoAdapter
from ..plan.caps import AOT_CAPS, Caps
from ..plan.plan import Buffer, Pipeline, Plan, Role
from . import cffi_types, shader_modules, signals

_T = TypeVar("_T")

_FEATURES = ("shader-f16", "subgroup")
# Lets the host map the buffers of inputs and outputs. Used only where the GPU has no
# memory of its own: kernels of a discrete one would reach them over the bus.
_SHARING = "mappable-primary-buffers"
_SHARING_TYPES = ("CPU", "IntegratedGPU")
# Lets the GPU say when a dispatch began and ended; asked for only to measure.
_TIMES = "timestamp-query"
# Discrete GPUs have from 60 to 200, integrated ones from 10 to 40.
_SIMDS = {"DiscreteGPU": 160, "IntegratedGPU": 24}

_BACKEND_RANK = {"Vulkan": 0, "Metal": 0, "D3D12": 0}
_TYPE_RANK = {"DiscreteGPU": 0, "IntegratedGPU": 1, "CPU": 3}

# How many pipelines are kept though nobody may use them any more: those asked for last,
# so that a model that is loaded again is not compiled again.
KEPT_PIPELINES = 256

# A line of wgpu's message, with nothing that it quotes: a file's names and kernels may
# speak of lost devices, too.
_SAYS_LOST = re.compile("^[^'\"`│\\n]*device (is|was) lost\\.?\\s*$", re.I | re.M)
# Characters, lines of a message.
_LINE, _LINES = 200, 40
_LOST = "the GPU device must be alive, got lost; load the method again for a new one"
_INSTALL = (
    "install a Vulkan driver, or a software one"
    " (Debian and Ubuntu: apt install mesa-vulkan-drivers)"
)


@dataclass
class Counters:
    """GPU objects of one device: alive now, and ever created."""

    buffers: int = 0
    buffer_bytes: int = 0
    pipelines: int = 0
    bind_groups: int = 0
    created_buffers: int = 0
    created_pipelines: int = 0
    created_bind_groups: int = 0


class GpuBuffer:
    """A counted buffer, freed by `free` or with its last reference."""

    def __init__(self, device: Device, raw: Any, size: int) -> None:
        self.raw = raw
        self.size = size
        self.handle = handle(raw)
        self._device = device
        device.counters.buffers += 1
        device.counters.created_buffers += 1
        device.counters.buffer_bytes += size

    def free(self) -> None:
        if self.raw is not None:
            raw, self.raw = self.raw, None
            self._device.counters.buffers -= 1
            self._device.counters.buffer_bytes -= self.size
            raw.destroy()

    def __del__(self) -> None:
        if not (sys.is_finalizing() or _shim.is_forked()):
            self.free()


class GpuBindGroup:
    """A counted bind group; it keeps its buffers and its pipeline alive."""

    def __init__(self, device: Device, raw: Any, needs: tuple[object, ...]) -> None:
        self.raw = raw
        self.handle = handle(raw)
        self._needs = needs
        self._counters = device.counters
        self._counters.bind_groups += 1
        self._counters.created_bind_groups += 1

    def __del__(self) -> None:
        self._counters.bind_groups -= 1


# A buffer with the offset and the size, in bytes, of what is bound of it.
Binding = tuple[GpuBuffer, int, int]


class GpuPipeline:
    """A counted compiled kernel."""

    def __init__(self, device: Device, raw: Any, layout: Any) -> None:
        self.raw = raw
        self.layout = layout
        self.handle = handle(raw)
        self.is_warm = False  # whether it was dispatched for that
        self._counters = device.counters
        self._counters.pipelines += 1
        self._counters.created_pipelines += 1

    def __del__(self) -> None:
        self._counters.pipelines -= 1


# The text of a kernel, how it uses its bindings, and whether it has all checks.
_Kernel = tuple[str, tuple[str, ...], bool]


@dataclass
class _Shared:
    buffer: GpuBuffer
    users: int


class Device:
    """One wgpu device with its caches. Use it under `lock`."""

    def __init__(
        self, adapter: Any, may_share: bool = True, is_timed: bool = False
    ) -> None:
        wanted = [name for name in _FEATURES if name in adapter.features]
        has_own_memory = adapter.info["adapter_type"] not in _SHARING_TYPES
        can_share = _SHARING in adapter.features and not has_own_memory
        self.is_shared = may_share and can_share
        wanted += [_SHARING] * self.is_shared
        self.has_times = is_timed and _TIMES in adapter.features
        wanted += [_TIMES] * self.has_times
        limits = {name: limit for name, limit in adapter.limits.items()}
        self.raw: Any = adapter.request_device_sync(
            label="executorch_webgpu", required_features=wanted, required_limits=limits
        )
        self.queue: Any = self.raw.queue
        self.caps = _caps(adapter, self.raw)
        # All that tells this device and its driver from others.
        info = adapter.info
        self.identity = f"{adapter.summary} | {info['description']}"
        self.lock = _shim.DeviceLock()
        self.counters = Counters()
        self.handles = (handle(self.raw), handle(self.queue))
        self.is_lost = False
        self._pipelines: WeakValueDictionary[_Kernel, GpuPipeline]
        self._pipelines = WeakValueDictionary()
        self._kept: OrderedDict[_Kernel, GpuPipeline] = OrderedDict()
        self._layouts: dict[tuple[str, ...], tuple[Any, Any]] = {}
        # By key, and by whether the content was held to it.
        self._shared: dict[tuple[str, bool], _Shared] = {}

    @contextmanager
    def errors(self, where: str) -> Iterator[None]:
        """Turns wgpu's errors into DeviceError, and notices a lost device."""
        import wgpu

        try:
            yield
        except wgpu.GPUOutOfMemoryError as error:
            raise LimitExceeded(f"{where}: out of GPU memory: {error}") from error
        except wgpu.GPUError as error:
            raise self.failure(where, str(error)) from error

    def failure(self, where: str, text: str) -> DeviceError:
        """The exception for what wgpu reported; a lost device is given up."""
        if _SAYS_LOST.search(text):
            self.is_lost = True
            return DeviceError(f"{where}: {_LOST}")
        text = _shortened(text)
        cause = _cause(text)
        return DeviceError(f"{where}: {cause}" + (f"\n{text}" if text != cause else ""))

    def run(self, call: Callable[[], _T]) -> _T:
        """Makes a call of the driver that may take seconds, in another thread.

        Ctrl-C leaves it: it goes on by itself, and keeps `lock` until it is done.
        """
        made: Future[_T] = Future()

        def make() -> None:
            try:
                made.set_result(call())
            except BaseException as error:  # raised where it is waited for
                made.set_exception(error)

        self.lock.run(make, signals.check)
        return made.result()

    def check(self) -> None:
        """Raises DeviceError if the device is lost: wgpu would abort the process."""
        if self.is_lost:
            raise DeviceError(_LOST)

    def check_sizes(self, plan: Plan) -> None:
        """Raises LimitExceeded for a buffer or binding that is too large here."""
        for spec in plan.buffers:
            self._check_size(spec, spec.size, "max-buffer-size", self.caps.max_buffer)
        name, limit = "max-storage-buffer-binding-size", self.caps.max_binding
        if max((spec.size for spec in plan.buffers), default=0) <= limit:
            return
        for step in plan.dispatches:
            for binding, index in enumerate(step.buffers):
                spec = plan.buffers[index]
                if spec.role is not Role.PARAMS:
                    _, size = step.bound(binding, spec.size)
                    self._check_size(spec, size, name, limit)

    def _check_size(self, spec: Buffer, size: int, name: str, limit: int) -> None:
        if size > limit:
            raise LimitExceeded(
                f"{spec.role.value} {spec.key}: {name} of {self.caps.name} is"
                f" {limit} bytes, got {size}"
            )

    def buffer(self, label: str, size: int, usage: int) -> GpuBuffer:
        signals.check()
        with self.errors(label):
            raw = self.raw.create_buffer(label=label, size=size, usage=usage)
        return GpuBuffer(self, raw, size)

    def storage_buffer(self, spec: Buffer) -> GpuBuffer:
        """A zeroed buffer for `spec`."""
        import wgpu

        usage = wgpu.BufferUsage
        label = f"{spec.role.value} {spec.key}"
        use = usage.UNIFORM if spec.role is Role.PARAMS else usage.STORAGE
        if self.is_shared and spec.role is Role.INPUT:
            use |= usage.MAP_WRITE
        if self.is_shared and spec.role in (Role.OUTPUT, Role.STATUS):
            use |= usage.MAP_READ
        return self.buffer(label, spec.size, usage.COPY_SRC | usage.COPY_DST | use)

    def write(self, buffer: GpuBuffer, offset: int, data: Any) -> None:
        """Copies bytes, a multiple of four of them, to the GPU."""
        self.queue.write_buffer(buffer.raw, offset, data)

    def finish(self) -> None:
        """Waits for all submitted work and writes, whose copies wgpu then drops."""
        # finish() raises if the device is lost, where submit() would abort.
        commands = self.raw.create_command_encoder().finish()
        self.queue.submit([commands])
        # wgpu 0.32 cannot call its own on_submitted_work_done.
        self.raw._poll_wait()
        signals.check()

    def compute(self, commands: Any) -> None:
        """Submits recorded dispatches and waits for them."""

        def submit() -> None:
            self.queue.submit([commands])
            self.raw._poll_wait()

        self.run(submit)

    def constant(
        self, spec: Buffer, is_verified: bool, fill: Callable[[GpuBuffer], None]
    ) -> GpuBuffer:
        """The shared buffer with `spec`'s content; `fill` runs only if it is new.

        What was not verified is shared apart. Every call must be matched by one of
        `release_constant`.
        """
        shared = self._shared.get((spec.key, is_verified))
        if shared is None:
            buffer = self.storage_buffer(spec)
            try:
                fill(buffer)
            except BaseException:
                buffer.free()
                raise
            shared = self._shared[spec.key, is_verified] = _Shared(buffer, 0)
        shared.users += 1
        return shared.buffer

    def release_constant(self, key: str, is_verified: bool) -> None:
        shared = self._shared[key, is_verified]
        shared.users -= 1
        if shared.users == 0:
            del self._shared[key, is_verified]
            shared.buffer.free()

    def pipeline(
        self, spec: Pipeline, where: str, is_checked: bool = False
    ) -> GpuPipeline:
        """The compiled kernel; `where` names the dispatch in an error."""
        key = (spec.wgsl, spec.access, is_checked)
        found = self._pipelines.get(key)
        if found is None:
            signals.check()
            with self.errors(where):
                found = self.run(lambda: self._compiled(spec, key))
        self._kept[key] = found
        self._kept.move_to_end(key)
        if len(self._kept) > KEPT_PIPELINES:
            self._kept.popitem(last=False)
        return found

    def _compiled(self, spec: Pipeline, key: _Kernel) -> GpuPipeline:
        *_, is_checked = key
        group_layout, layout = self._layout(spec.access)
        module = shader_modules.create_shader_module(
            self.raw, spec.label, spec.wgsl, is_checked
        )
        raw = self.raw.create_compute_pipeline(
            label=spec.label,
            layout=layout,
            compute={"module": module, "entry_point": "main"},
        )
        # Here, because a load that was interrupted has it for the next one.
        made = self._pipelines[key] = self._kept[key] = GpuPipeline(
            self, raw, group_layout
        )
        return made

    def _layout(self, access: tuple[str, ...]) -> tuple[Any, Any]:
        """Explicit, because an automatic layout drops bindings a kernel ignores."""
        import wgpu

        if access not in self._layouts:
            kinds = {
                "read": wgpu.BufferBindingType.read_only_storage,
                "write": wgpu.BufferBindingType.storage,
                "uniform": wgpu.BufferBindingType.uniform,
            }
            entries = [
                {
                    "binding": index,
                    "visibility": wgpu.ShaderStage.COMPUTE,
                    "buffer": {"type": kinds[kind]},
                }
                for index, kind in enumerate(access)
            ]
            group = self.raw.create_bind_group_layout(entries=entries)
            layout = self.raw.create_pipeline_layout(bind_group_layouts=[group])
            self._layouts[access] = (group, layout)
        return self._layouts[access]

    def bind_group(
        self,
        pipeline: GpuPipeline,
        bindings: Sequence[Binding],
        where: str,
    ) -> GpuBindGroup:
        needs = (pipeline, *(buffer for buffer, _, _ in bindings))
        entries = [
            {
                "binding": index,
                "resource": {"buffer": buffer.raw, "offset": offset, "size": size},
            }
            for index, (buffer, offset, size) in enumerate(bindings)
        ]
        with self.errors(where):
            raw = self.raw.create_bind_group(layout=pipeline.layout, entries=entries)
        return GpuBindGroup(self, raw, needs)


_guard = threading.Lock()
# By the name asked for, and whether they were asked for to measure.
_devices: dict[tuple[str, bool], Device] = {}
# Adapters that were looked for and have no device yet, by the name asked for.
_adapters: dict[str, Any] = {}


def get_device(asked: str | None = None, is_timed: bool = False) -> Device:
    """The device that all delegates share; a new one if the last was lost. Another one
    measures, since not every adapter does that for nothing."""
    name = options.current().adapter if asked is None else asked
    _shim.open_gpu()
    with _guard:
        device = _devices.get((name, is_timed))
        if device is None or device.is_lost:
            adapter = _adapters.pop(name, None) or _choose_adapter(name)
            with signals.held():
                device = Device(adapter, is_timed=is_timed)
            _devices[name, is_timed] = device
        return device


def live_devices() -> list[Device]:
    """The devices made so far, lost ones excepted."""
    with _guard:
        return [device for device in _devices.values() if not device.is_lost]


def check_available() -> None:
    """Raises NoAdapter, with what to do, if nothing could run."""
    _shim.open_gpu()
    with _guard:
        name = options.current().adapter
        if (name, False) not in _devices and name not in _adapters:
            _adapters[name] = _choose_adapter(name)


def _after_fork() -> None:
    """In the child, where no other thread can give a lock back, and where freeing a
    GPU object of the parent's would hang."""
    global _guard
    _guard = threading.Lock()
    if _shim.is_forked():
        _shim.leak(_devices)
        _shim.leak(_adapters)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def handle(raw: Any) -> int:
    """The address behind a wgpu-py object, for the native replay."""
    from wgpu.backends.wgpu_native._ffi import ffi

    return int(ffi.cast("uintptr_t", raw._internal))


def native_library() -> str:
    """The path of the libwgpu_native that wgpu-py has loaded."""
    from wgpu.backends.wgpu_native import _ffi

    return str(_ffi.lib_path)


def _choose_adapter(name: str) -> Any:
    try:
        import wgpu
        from wgpu.backends.wgpu_native import _ffi

        cffi_types.quicken(_ffi.ffi)
        with signals.held():
            found = list(wgpu.gpu.enumerate_adapters_sync())
    except (ImportError, OSError, RuntimeError) as error:
        raise NoAdapter(f"wgpu must load, got {error}; {_INSTALL}") from error
    if not found:
        raise NoAdapter(f"there must be a GPU adapter, got none; {_INSTALL}")
    matching = [a for a in found if name.lower() in a.summary.lower()]
    if not matching:
        names = ", ".join(a.summary for a in found)
        raise NoAdapter(f"adapter: must be part of one of [{names}], got {name!r}")
    return min(matching, key=_rank)


def _shortened(text: str) -> str:
    """wgpu's message, which quotes kernels: one from a file may have lines without
    end."""
    lines = text.splitlines()
    return "\n".join(line[:_LINE] for line in lines[:_LINES])


def _cause(text: str) -> str:
    """The line of wgpu's message that says most: the last one, since each is caused by
    those below it, or what a parser says of a kernel, before it quotes the kernel."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return next((line for line in lines if "parsing error:" in line), lines[-1])


def _rank(adapter: Any) -> tuple[int, int, bool]:
    info = adapter.info
    return (
        _BACKEND_RANK.get(info["backend_type"], 1),
        _TYPE_RANK.get(info["adapter_type"], 2),
        # Of two software drivers, this is the slower one by far.
        "swiftshader" in adapter.summary.lower(),
    )


def _caps(adapter: Any, raw: Any) -> Caps:
    limits = raw.limits
    return Caps(
        f16="shader-f16" in raw.features,
        subgroups="subgroup" in raw.features,
        is_cpu=adapter.info["adapter_type"] == "CPU",
        max_binding=limits["max-storage-buffer-binding-size"],
        max_buffer=limits["max-buffer-size"],
        max_storage_buffers=limits["max-storage-buffers-per-shader-stage"],
        max_workgroups=limits["max-compute-workgroups-per-dimension"],
        max_invocations=limits["max-compute-invocations-per-workgroup"],
        workgroup_memory=limits["max-compute-workgroup-storage-size"],
        offset_align=limits["min-storage-buffer-offset-alignment"],
        simds=_SIMDS.get(adapter.info["adapter_type"], AOT_CAPS.simds),
        name=adapter.summary,
    )
