"""Plays a plan dispatch by dispatch, so that what happens in between can be seen.

Enters: a program and the arguments of a call. Leaves: the same results as if it had
been played at once; each dispatch was submitted and waited for alone, and the results
of op calls were read while they were in a buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from ..ir.dtypes import DType
from ..plan import events
from ..plan.plan import StoredValue
from ..plan.tensor import reach
from .executor import Program, encode

Submit = Callable[[], None]


class Log(Protocol):
    """Who is told; ExecuTorch's event tracer, behind the shim."""

    def begin(self, name: str) -> None: ...
    def end(self) -> None: ...
    def value(
        self, name: str, dtype: int, shape: Sequence[int], data: bytes
    ) -> None: ...


def play_each(
    program: Program,
    inputs: Sequence[memoryview],
    outputs: Sequence[memoryview],
    around: Callable[[int, Submit], None],
) -> None:
    """`around` gets the index of each dispatch, in order, and what submits it and waits
    for it."""
    import wgpu

    executor, device = program.executor, program.executor.device
    device.check()
    try:
        executor.upload(program, inputs)
        if program.status_buffer is not None:
            encoder = device.raw.create_command_encoder()
            encoder.clear_buffer(program.status_buffer.raw)
            device.queue.submit([encoder.finish()])
        for index, (step, group) in enumerate(
            zip(program.plan.dispatches, program.groups)
        ):
            encoder = device.raw.create_command_encoder()
            if 0 not in step.groups:
                pipeline = program.pipelines[step.pipeline]
                encode(encoder, [(step, pipeline, group)])
            around(index, partial(device.compute, encoder.finish()))
    except wgpu.GPUError as error:
        program.diagnose(str(error))
    executor.read_each(program, outputs)


class LoggedProgram:
    """What the shim plays where results of op calls are to be logged."""

    def __init__(self, program: Program) -> None:
        self.ports = program.ports
        self._program = program

    def play(
        self, inputs: Sequence[memoryview], outputs: Sequence[memoryview], log: Log
    ) -> None:
        play_logged(self._program, inputs, outputs, log)


def play_logged(
    program: Program,
    inputs: Sequence[memoryview],
    outputs: Sequence[memoryview],
    log: Log,
) -> None:
    """A value is logged under the name of its call's first launch. Other launches have
    names that no node of the model is found by: they have no value to compare."""
    plan = program.plan
    values: dict[int, list[StoredValue]] = {}
    for value in plan.values:
        values.setdefault(value.after, []).append(value)
    names = {value.call: value.name for value in plan.values}
    launches = [
        names.pop(step.call, name.lstrip("#"))
        for step, name in zip(plan.dispatches, events.launch_names(plan))
    ]

    def around(index: int, submit: Submit) -> None:
        log.begin(launches[index])
        submit()
        log.end()
        for value in values.get(index, ()):
            data = read_value(program, value)
            # An ETDump has no type of 16 bits for floats.
            dtype = DType.FLOAT32 if value.dtype.is_float else value.dtype
            elements = data.astype(dtype.numpy, copy=False)
            log.value(value.name, int(dtype), elements.shape, elements.tobytes())

    play_each(program, inputs, outputs, around)


def read_value(program: Program, value: StoredValue) -> np.ndarray[Any, Any]:
    """The elements as they are stored, in row-major order."""
    shape, strides, offset = value.view
    size = value.storage.size
    low, high = reach(shape, strides, offset)
    begin, end = low * size // 4 * 4, -(-(high + 1) * size // 4) * 4
    buffer = program.buffers[value.buffer]
    words = np.frombuffer(
        program.executor.read(buffer, begin, end - begin), value.storage.numpy
    )
    first = offset - begin // size
    view = np.lib.stride_tricks.as_strided(
        words[first:], shape, [stride * size for stride in strides], writeable=False
    )
    return np.ascontiguousarray(view).reshape(shape)
