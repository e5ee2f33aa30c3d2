"""How long each dispatch takes, measured while ExecuTorch runs a program.

While `measuring`, what is loaded gets a device that can measure, and tells of every
call. The GPU's own clock times each dispatch, all of a call in one submit, so that what
is measured is what runs otherwise, but that each has a compute pass of its own. An
adapter without such a clock gets one submit for each dispatch, timed by the host.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import _shim, ir
from ..plan.plan import Plan
from . import stepwise
from .device import Device
from .executor import Program, encode

# Queries of one set: WebGPU allows no more.
_MOST_QUERIES = 4096
_RESOLVE_ALIGN = 256


@dataclass(frozen=True)
class Delegate:
    """One that was loaded."""

    method: str
    graph: ir.Graph | None  # None: its plans come from the file


@dataclass(frozen=True)
class Call:
    """One call of a delegate: nanoseconds at which its dispatches began and ended."""

    delegate: int
    plan: Plan
    begins: tuple[float, ...]
    ends: tuple[float, ...]


@dataclass
class Timings:
    """What was loaded and called while measuring."""

    is_alone: bool = False  # each dispatch by itself, whatever the adapter has
    adapter: str = ""
    by_host: bool = False  # whether dispatches were submitted alone
    delegates: list[Delegate] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def add(self, method: str, graph: ir.Graph | None, gpu: Device) -> int:
        self.adapter = gpu.caps.name
        self.by_host = self.is_alone or not gpu.has_times
        self.delegates.append(Delegate(method, graph))
        return len(self.delegates) - 1


_current: Timings | None = None


def current() -> Timings | None:
    """Whoever measures; None if nobody does."""
    return _current


@contextmanager
def measuring(is_alone: bool = False) -> Iterator[Timings]:
    """What is loaded and called meanwhile is measured."""
    global _current
    before, _current = _current, Timings(is_alone)
    try:
        yield _current
    finally:
        _current = before


class TimedProgram:
    """What the shim plays where times are measured."""

    replay: _shim.Replay | None = None

    def __init__(self, program: Program, timings: Timings, delegate: int) -> None:
        self.ports = program.ports
        self._program = program
        self._timings = timings
        self._delegate = delegate

    def play(self, inputs: Sequence[memoryview], outputs: Sequence[memoryview]) -> None:
        play = _play_alone if self._timings.by_host else _play_at_once
        begins, ends = play(self._program, inputs, outputs)
        plan = self._program.plan
        self._timings.calls.append(
            Call(self._delegate, plan, tuple(begins), tuple(ends))
        )


_Times = tuple[list[float], list[float]]


def _play_alone(
    program: Program, inputs: Sequence[memoryview], outputs: Sequence[memoryview]
) -> _Times:
    begins: list[float] = []
    ends: list[float] = []

    def around(index: int, submit: stepwise.Submit) -> None:
        begins.append(time.perf_counter_ns())
        submit()
        ends.append(time.perf_counter_ns())

    stepwise.play_each(program, inputs, outputs, around)
    return begins, ends


def _play_at_once(
    program: Program, inputs: Sequence[memoryview], outputs: Sequence[memoryview]
) -> _Times:
    import wgpu

    executor, device = program.executor, program.executor.device
    device.check()
    steps = program.steps()
    usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
    sets = -(-2 * len(steps) // _MOST_QUERIES)
    resolved = device.buffer("times", max(1, sets) * _MOST_QUERIES * 8, usage)
    try:
        executor.upload(program, inputs)
        encoder = device.raw.create_command_encoder()
        if program.status_buffer is not None:
            encoder.clear_buffer(program.status_buffer.raw)
        for first in range(0, len(steps), _MOST_QUERIES // 2):
            part = steps[first : first + _MOST_QUERIES // 2]
            _encode_timed(device, encoder, part, resolved.raw, 16 * first)
        device.compute(encoder.finish())
        raw = executor.read(resolved, 0, max(16 * len(steps), 16))
    except wgpu.GPUError as error:
        program.diagnose(str(error))
        raise
    finally:
        resolved.free()
    executor.read_each(program, outputs)
    ticks = np.frombuffer(raw, np.uint64)[: 2 * len(steps)]
    times = ticks.astype(np.float64) * _period(device)
    return _spread(program, times[0::2].tolist(), times[1::2].tolist())


def _encode_timed(
    device: Device, encoder: Any, steps: Sequence[Any], resolved: Any, offset: int
) -> None:
    queries = device.raw.create_query_set(type="timestamp", count=2 * len(steps))
    for at, step in enumerate(steps):
        times = {
            "query_set": queries,
            "beginning_of_pass_write_index": 2 * at,
            "end_of_pass_write_index": 2 * at + 1,
        }
        encode(encoder, [step], times)
    assert offset % _RESOLVE_ALIGN == 0
    encoder.resolve_query_set(queries, 0, 2 * len(steps), resolved, offset)


def _spread(program: Program, begins: list[float], ends: list[float]) -> _Times:
    """Times of all dispatches of the plan: those with an empty grid take none."""
    found = iter(zip(begins, ends))
    last = 0.0
    made: tuple[list[float], list[float]] = ([], [])
    for step in program.plan.dispatches:
        begin, last = (last, last) if 0 in step.groups else next(found)
        made[0].append(begin)
        made[1].append(last)
    return made


def _period(device: Device) -> float:
    """Nanoseconds of a tick."""
    from wgpu.backends.wgpu_native._ffi import lib

    return float(lib.wgpuQueueGetTimestampPeriod(device.queue._internal))
