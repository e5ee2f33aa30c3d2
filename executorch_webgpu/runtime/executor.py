"""Plan to GPU objects, and the reference player, which uses wgpu-py alone.

Enters: plans of one Planner and the named data. Leaves: Programs, which this executor
or the native replay can play. Buffers are made once and never move, so bind groups are
shared between plans, and playing makes no GPU object but the command buffer. The
reference player submits once per call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from .. import _shim
from ..errors import InvalidBlob, InvalidInput
from ..ir.dtypes import Storage
from ..plan import events
from ..plan.plan import (
    Buffer,
    Constant,
    Dispatch,
    Pipeline,
    Plan,
    Port,
    PortKind,
    Role,
)
from .device import Binding, Device, GpuBindGroup, GpuBuffer, GpuPipeline
from .upload import GetData, Uploader

# Bytes. Outputs start at multiples of this in the staging buffer.
_ALIGN = 16

_STORAGE_CODES = {Storage.F32: 0, Storage.F16: 1, Storage.I32: 2}

_T = TypeVar("_T")


class Program:
    """A plan with the GPU objects that it needs, which this keeps alive.

    Whatever a call copies or binds is inside its buffer: InvalidBlob if it is not.
    """

    def __init__(self, executor: WgpuExecutor, plan: Plan) -> None:
        self.executor = executor
        self.plan = plan
        self.buffers = [executor.buffers[b.role, b.key] for b in plan.buffers]
        self._check_sizes()
        self.pipelines = _first_uses(plan, self._pipeline)
        self.groups = [self._group(step) for step in plan.dispatches]
        self.offsets, self.staged = _staging_layout(plan.outputs)
        self.ports = _shim.Ports(
            [self._port(port, 0) for port in plan.inputs],
            [self._port(*pair) for pair in zip(plan.outputs, self.offsets)],
        )
        self.replay: _shim.Replay | None = None

    @property
    def is_read_at_once(self) -> bool:
        """Whether all outputs fit the staging buffer, or need none."""
        device = self.executor.device
        return device.is_shared or self.staged <= device.caps.max_buffer

    @property
    def params_buffer(self) -> GpuBuffer | None:
        for spec, buffer in zip(self.plan.buffers, self.buffers):
            if spec.role is Role.PARAMS:
                return buffer
        return None

    @property
    def status_buffer(self) -> GpuBuffer | None:
        return self.buffers[self.plan.status] if self.plan.status >= 0 else None

    def play(self, inputs: Sequence[memoryview], outputs: Sequence[memoryview]) -> None:
        """Plays with wgpu-py; `inputs` and `outputs` have the GPU's element types."""
        self.executor.play(self, inputs, outputs)

    def diagnose(self, message: str) -> None:
        """Raises DeviceError naming the dispatch that makes wgpu complain."""
        device = self.executor.device
        for step, pipeline, group in self.steps():
            encoder = device.raw.create_command_encoder()
            with device.errors(self._where(step)):
                encode(encoder, [(step, pipeline, group)])
                encoder.finish()
        raise device.failure(f"{self.executor.name}: execute", message)

    def steps(self) -> list[tuple[Dispatch, GpuPipeline, GpuBindGroup]]:
        """The dispatches whose grid is not empty, with pipeline and bind group."""
        return [
            (step, self.pipelines[step.pipeline], group)
            for step, group in zip(self.plan.dispatches, self.groups)
            if 0 not in step.groups
        ]

    def native_replay(self, session: _shim.Session) -> _shim.Replay:
        """The same, for C++."""
        params, status = self.params_buffer, self.status_buffer
        return _shim.Replay(
            session,
            self.ports,
            [
                (
                    self.pipelines[step.pipeline].handle,
                    group.handle,
                    *step.groups,
                    name,
                )
                for step, group, name in zip(
                    self.plan.dispatches, self.groups, events.launch_names(self.plan)
                )
                if 0 not in step.groups
            ],
            self.plan.params,
            params.handle if params else 0,
            status.handle if status else 0,
            {step.call: step.label for step in self.plan.dispatches},
        )

    def _check_sizes(self) -> None:
        """Buffers were made for the upper bound, which must be one."""
        for port in (*self.plan.inputs, *self.plan.outputs):
            if port.buffer >= 0:
                _require_fits(port.name, port.nbytes, self.buffers[port.buffer])
        for spec, buffer in zip(self.plan.buffers, self.buffers):
            _require_fits(f"{spec.role.value} {spec.key}", spec.size, buffer)
        if self.params_buffer is not None:
            _require_fits("parameters", len(self.plan.params), self.params_buffer)

    def _pipeline(self, step: Dispatch) -> GpuPipeline:
        spec = self.plan.pipelines[step.pipeline]
        executor = self.executor
        return executor.device.pipeline(spec, self._where(step), executor.is_checked)

    def _group(self, step: Dispatch) -> GpuBindGroup:
        buffers = [self.buffers[index] for index in step.buffers]
        params: list[Binding] = []
        if step.params >= 0:
            params = [(buffers.pop(), step.params, step.params_size)]
        bound = [(b, *step.bound(k, b.size)) for k, b in enumerate(buffers)]
        bindings = [*bound, *params]
        for buffer, offset, size in bindings:
            _require_fits(step.label, offset + size, buffer)
        return self.executor.bind_group(
            self.pipelines[step.pipeline], bindings, self._where(step)
        )

    def _port(self, port: Port, offset: int) -> _shim.PortTuple:
        return (
            port.name,
            port.kind is PortKind.INT,
            self.buffers[port.buffer].handle if port.buffer >= 0 else 0,
            int(port.dtype),
            _STORAGE_CODES[port.storage],
            port.shape,
            offset,
            port.value,
            [(each.label, each.add, each.count, each.length) for each in port.limits],
        )

    def _where(self, step: Dispatch) -> str:
        kernel = self.plan.pipelines[step.pipeline].label
        return f"{step.label} (call {step.call}, kernel {kernel})"


class WgpuExecutor:
    """The GPU objects of one delegate. Use it under the device's lock.

    With `is_verified`, named data must be what its key is the hash of, and is shared
    only with delegates that hold it to that, too. With `is_checked`, kernels have all
    run-time checks of wgpu.
    """

    def __init__(
        self,
        device: Device,
        name: str,
        get_data: GetData,
        is_verified: bool = False,
        is_checked: bool = False,
    ) -> None:
        self.device = device
        self.name = name
        self.is_checked = is_checked
        self.session = _shim.Session(device.lock, *device.handles, device.is_shared)
        self.buffers: dict[tuple[Role, str], GpuBuffer] = {}
        self._uploader = Uploader(get_data, name, is_verified)
        self._states: dict[str, Constant] = {}
        self._groups: WeakValueDictionary[object, GpuBindGroup] = WeakValueDictionary()
        self._staging: GpuBuffer | None = None

    def compile(self, spec: Pipeline) -> GpuPipeline:
        """A kernel that a later plan may use."""
        return self.device.pipeline(spec, f"kernel {spec.label}", self.is_checked)

    def prepare(self, plan: Plan) -> Program:
        """Makes the GPU objects of `plan` that do not exist yet."""
        self.device.check()
        before = set(self.buffers)
        try:
            self._allocate(plan)
            program = Program(self, plan)
            # Last, because data is hashed while other things are made.
            self._uploader.verify()
        except BaseException:
            # What was not verified must not be there for the next plan.
            self._uploader.give_up()
            self._free(self.buffers.keys() - before)
            raise
        if not self.device.is_shared:
            largest = self.device.caps.max_buffer // _ALIGN * _ALIGN
            self._reserve_staging(min(program.staged, largest))
        return program

    def play(
        self,
        program: Program,
        inputs: Sequence[memoryview],
        outputs: Sequence[memoryview],
    ) -> None:
        import wgpu

        self.device.check()
        try:
            self.upload(program, inputs)
            # An invalid command buffer fails here; submitting it would abort.
            self.device.compute(self._encode(program))
        except wgpu.GPUError as error:
            program.diagnose(str(error))
        if program.is_read_at_once and not self.device.is_shared:
            self._read_staging(program, outputs)
        else:
            self.read_each(program, outputs)

    def record(self, program: Program) -> Any:
        """The command buffer of a plan without inputs, to be submitted once."""
        self.device.check()
        self.upload(program, [])
        return self._encode(program)

    def bind_group(
        self,
        pipeline: GpuPipeline,
        bindings: Sequence[Binding],
        where: str,
    ) -> GpuBindGroup:
        bound = tuple((b.handle, offset, size) for b, offset, size in bindings)
        key = (pipeline.handle, bound)
        found = self._groups.get(key)
        if found is None:
            found = self.device.bind_group(pipeline, bindings, where)
            self._groups[key] = found
        return found

    def reset_state(self) -> None:
        """Gives every STATE buffer its content at export."""
        self.device.check()
        for key, constant in self._states.items():
            buffer = self.buffers[Role.STATE, key]
            encoder = self.device.raw.create_command_encoder()
            with self.device.errors(f"{self.name}: reset of {key}"):
                encoder.clear_buffer(buffer.raw)
                self.device.queue.submit([encoder.finish()])
            self._fill(buffer, constant)
        self._uploader.verify()

    def close(self) -> None:
        """Frees all buffers but the constants that other delegates use."""
        self._free(list(self.buffers))
        self._groups.clear()
        if self._staging is not None:
            self._staging.free()
            self._staging = None

    def _free(self, keys: Collection[tuple[Role, str]]) -> None:
        for role, key in keys:
            buffer = self.buffers.pop((role, key))
            if role is Role.CONSTANT:
                self.device.release_constant(key, self._uploader.is_verified)
            else:
                buffer.free()

    def _allocate(self, plan: Plan) -> None:
        self.device.check_sizes(plan)
        sources = {constant.buffer: constant for constant in plan.constants}
        missing = [
            (spec, sources.get(index))
            for index, spec in enumerate(plan.buffers)
            if (spec.role, spec.key) not in self.buffers
        ]
        # The largest first: while one is uploaded its host copy exists too, which adds
        # least to the peak before the others are allocated.
        for spec, constant in sorted(missing, key=lambda pair: -pair[0].size):
            # Plans from a file may have one content twice.
            if (spec.role, spec.key) not in self.buffers:
                self.buffers[spec.role, spec.key] = self._buffer(spec, constant)

    def _buffer(self, spec: Buffer, constant: Constant | None) -> GpuBuffer:
        def fill(buffer: GpuBuffer) -> None:
            if constant is not None:
                self._fill(buffer, constant)

        if spec.role is Role.CONSTANT:
            return self.device.constant(spec, self._uploader.is_verified, fill)
        buffer = self.device.storage_buffer(spec)
        if spec.role is Role.STATE and constant is not None:
            self._states[spec.key] = constant
        try:
            fill(buffer)
        except BaseException:
            buffer.free()
            raise
        return buffer

    def _fill(self, buffer: GpuBuffer, constant: Constant) -> None:
        self._uploader.fill(self.device, buffer, constant)

    def _reserve_staging(self, size: int) -> None:
        import wgpu

        old = self._staging
        if old is not None and old.size >= size:
            return
        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        self._staging = self.device.buffer("staging", size, usage)
        self.session.set_staging(self._staging.handle, size)
        # Last: had there been no room for the new one, replays would still use this.
        if old is not None:
            old.free()

    def upload(self, program: Program, inputs: Sequence[memoryview]) -> None:
        # The native replay writes the same buffers, leaves inputs mapped, and writes
        # parameters only if they are not there.
        self.session.close_inputs()
        self.session.forget_params()
        for port, data in zip(program.plan.inputs, inputs):
            if port.buffer >= 0 and data.nbytes:
                self.device.write(program.buffers[port.buffer], 0, data)
        if program.params_buffer and program.plan.params:
            self.device.write(program.params_buffer, 0, program.plan.params)

    def _encode(self, program: Program) -> Any:
        encoder = self.device.raw.create_command_encoder()
        status = program.status_buffer
        if status is not None:
            encoder.clear_buffer(status.raw)
        encode(encoder, program.steps())
        if self._staging is not None and program.is_read_at_once:
            self._encode_staging(encoder, program, self._staging.raw)
        return encoder.finish()

    def _encode_staging(self, encoder: Any, program: Program, staging: Any) -> None:
        status = program.status_buffer
        if status is not None:
            encoder.copy_buffer_to_buffer(status.raw, 0, staging, 0, _shim.STATUS_BYTES)
        for port, offset in zip(program.plan.outputs, program.offsets):
            if port.buffer >= 0 and port.numel:
                source = program.buffers[port.buffer].raw
                encoder.copy_buffer_to_buffer(source, 0, staging, offset, port.nbytes)

    def _read_staging(self, program: Program, outputs: Sequence[memoryview]) -> None:
        assert self._staging is not None
        with self._mapped(self._staging, program.staged) as mapped:
            if program.plan.status >= 0:
                _check_status(program.plan, mapped[: _shim.STATUS_BYTES])
            for port, offset, out in zip(
                program.plan.outputs, program.offsets, outputs
            ):
                if port.buffer >= 0 and port.numel:
                    out[:] = mapped[offset : offset + port.nbytes]

    def read_each(self, program: Program, outputs: Sequence[memoryview]) -> None:
        """Reads one output after the other: from its own buffer where the GPU shares
        the host's memory, or through the staging buffer, if that cannot hold all."""
        opened = self._mapped if self.device.is_shared else self._staged
        status = program.status_buffer
        if status is not None:
            with opened(status, _shim.STATUS_BYTES) as mapped:
                _check_status(program.plan, mapped)
        for port, out in zip(program.plan.outputs, outputs):
            if port.buffer >= 0 and port.numel:
                buffer = program.buffers[port.buffer]
                with opened(buffer, port.nbytes) as mapped:
                    out[:] = mapped

    def read(self, source: GpuBuffer, offset: int, size: int) -> bytes:
        """Bytes of any buffer, whole words of them, through a buffer made for that."""
        import wgpu

        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        target = self.device.buffer("read", size, usage)
        encoder = self.device.raw.create_command_encoder()
        try:
            with self.device.errors(f"{self.name}: read"):
                encoder.copy_buffer_to_buffer(source.raw, offset, target.raw, 0, size)
                self.device.queue.submit([encoder.finish()])
            with self._mapped(target, size) as mapped:
                return bytes(mapped)
        finally:
            target.free()

    @contextmanager
    def _staged(self, source: GpuBuffer, size: int) -> Iterator[memoryview]:
        """The first bytes of a buffer, through the staging buffer."""
        assert self._staging is not None
        encoder = self.device.raw.create_command_encoder()
        with self.device.errors(f"{self.name}: read-back"):
            encoder.copy_buffer_to_buffer(source.raw, 0, self._staging.raw, 0, size)
            self.device.queue.submit([encoder.finish()])
        with self._mapped(self._staging, size) as mapped:
            yield mapped

    @contextmanager
    def _mapped(self, buffer: GpuBuffer, size: int) -> Iterator[memoryview]:
        where = f"{self.name}: read-back"
        with self.device.errors(where):
            try:
                buffer.raw.map_sync("READ", 0, size)
            except RuntimeError as error:
                raise self.device.failure(where, str(error)) from error
            try:
                yield buffer.raw.read_mapped(0, size, copy=False)
            finally:
                buffer.raw.unmap()


def _require_fits(what: str, size: int, buffer: GpuBuffer) -> None:
    if size > buffer.size:
        raise InvalidBlob(
            f"{what}: must fit its buffer of {buffer.size} bytes, got {size}; the"
            " program's upper bounds are wrong"
        )


def encode(
    encoder: Any,
    steps: Sequence[tuple[Dispatch, GpuPipeline, GpuBindGroup]],
    times: dict[str, Any] | None = None,
) -> None:
    """Encodes one compute pass with all dispatches, and where its times go, if
    anywhere."""
    if not steps:
        return
    encoding = encoder.begin_compute_pass(timestamp_writes=times)
    for step, pipeline, group in steps:
        encoding.set_pipeline(pipeline.raw)
        encoding.set_bind_group(0, group.raw)
        encoding.dispatch_workgroups(*step.groups)
    encoding.end()


def _first_uses(plan: Plan, make: Callable[[Dispatch], _T]) -> dict[int, _T]:
    """By pipeline, what `make` returns for its first dispatch."""
    made: dict[int, _T] = {}
    for step in plan.dispatches:
        if step.pipeline not in made:
            made[step.pipeline] = make(step)
    return made


def _staging_layout(outputs: Sequence[Port]) -> tuple[list[int], int]:
    """The offset of each output, behind the status words, and the total size."""
    offsets: list[int] = []
    end = _shim.STATUS_BYTES
    for port in outputs:
        offsets.append(end)
        end += -(-port.nbytes // _ALIGN) * _ALIGN
    return offsets, end


def _check_status(plan: Plan, status: memoryview) -> None:
    kind, call, a, b = np.frombuffer(status, np.int32).tolist()
    report = _shim.describe_report(kind, call, a, b)
    if report:
        labels = {step.call: step.label for step in plan.dispatches}
        raise InvalidInput(f"{labels.get(call, f'call {call}')}: {report}")
