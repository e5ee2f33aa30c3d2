"""Autotune: which of a kernel's forms is the fastest here, measured.

An op function offers forms that compute the same, by the recorder's `choose`. Without
measurements it gets the first, so plans depend on nothing but shapes and adapter. With
the option `autotune`, a form is chosen by timing: each form of one call runs alone on
the device, with zeroed buffers, once per device, driver, version of our kernels, kernel
and class of shapes. Forms that win alone must win together too: the plan with them is
timed against the plan without. The results are kept in a file of the user's.

Where the adapter is a CPU, time is CPU time of the process, all threads, which other
load on the machine hardly changes.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

from .. import __version__, ir
from ..errors import LimitExceeded, WebGPUError
from ..plan.caps import Caps
from ..plan.plan import Buffer, Choice, Dispatch, Plan, Role
from ..plan.planner import Planner
from . import shader_modules, signals
from .device import Device
from .executor import Program, WgpuExecutor
from .tuning_file import Measured, TuningFile

_logger = logging.getLogger("executorch_webgpu")

# Another form than the first must take at most this share of its time, in most of the
# rounds: the first was chosen for reasons, and times are noisy.
_GAIN = 0.95
_ROUNDS = 7
_MOST = 6
# A form that takes so many times as long as the first, in each try, is dropped.
_HOPELESS = 4.0
_TRIES = 3
# The time of one submit, which repeats a call so that its own cost does not show.
_SECONDS = 0.002
_MOST_REPEATS = 64

_Make = Callable[[Planner], Plan]


class TunedPlanner:
    """A Planner whose plans use the fastest forms, measured at first use."""

    def __init__(
        self,
        graph: ir.Graph,
        gpu: Device,
        caps: Caps,
        path: Path,
        is_checked: bool = False,
    ) -> None:
        self._graph = graph
        self._gpu = gpu
        self._caps = caps
        self._is_checked = is_checked
        self._file = TuningFile(path, device_key(gpu, is_checked))
        self._planner = Planner(graph, caps, self._file.choices())

    def upper_bound(self) -> Plan:
        return self._settled(Planner.upper_bound)

    def plan(self, inputs: Sequence[tuple[int, ...] | int]) -> Plan:
        return self._settled(lambda planner: planner.plan(inputs))

    def plan_with_values(self, inputs: Sequence[tuple[int, ...] | int]) -> Plan:
        return self._settled(lambda planner: planner.plan_with_values(inputs))

    def _settled(self, make: _Make) -> Plan:
        """The plan once all of its choices have been measured."""
        tuned = self._planner.tuned
        while True:
            plan = make(self._planner)
            # A form may bring choices of its own, so look again.
            unknown = [c for c in plan.choices if c.key not in tuned]
            if not unknown:
                return plan
            with signals.held():
                measured = {c.key: self._measure(make, c) for c in unknown}
                found = {key: times.best for key, times in measured.items()}
                if not self._wins(make, found):
                    found = {choice.key: choice.names[0] for choice in unknown}
            for key, times in measured.items():
                tuned[key] = found[key]
                self._file.add(key, replace(times, best=found[key]))

    def _wins(self, make: _Make, found: dict[str, str]) -> bool:
        """Whether the whole plan is faster with the forms that were found."""
        tuned = self._planner.tuned
        plans = [
            make(Planner(self._graph, self._caps, {**tuned, **forms}))
            for forms in ({}, found)
        ]
        if plans[0].dispatches == plans[1].dispatches:
            return True
        trials: list[_Trial] = []
        try:
            for name, plan in zip(("first", "found"), plans):
                trials.append(self._trial(name, unfilled(plan, plan.dispatches)))
            return _fastest(trials, 1.0)[0] == "found"
        except LimitExceeded:  # no room for two plans beside what is loaded
            return False
        finally:
            for trial in trials:
                trial.close()

    def _measure(self, make: _Make, choice: Choice) -> Measured:
        trials = self._trials(make, choice)
        try:
            return Measured(*_fastest(trials))
        finally:
            for trial in trials:
                trial.close()

    def _trials(self, make: _Make, choice: Choice) -> list[_Trial]:
        """The forms that can be planned, ready to run; the first must be."""
        trials: list[_Trial] = []
        for name in choice.names:
            forced = {**self._planner.tuned, choice.key: name}
            try:
                plan = make(Planner(self._graph, self._caps, forced))
                trials.append(self._trial(name, alone(plan, choice.call)))
            except WebGPUError as error:
                if not trials:
                    raise
                _logger.warning("autotune: %s cannot be %s: %s", choice, name, error)
        return trials

    def _trial(self, name: str, plan: Plan) -> _Trial:
        return _Trial(name, self._gpu, plan, self._is_checked)


class _Trial:
    """One form of one call, with GPU objects of its own."""

    def __init__(
        self, name: str, gpu: Device, plan: Plan, is_checked: bool = False
    ) -> None:
        self.name = name
        self.best = float("inf")
        self._gpu = gpu
        self._clock = time.process_time if gpu.caps.is_cpu else time.perf_counter
        self._executor = WgpuExecutor(
            gpu, "autotune", lambda key: None, is_checked=is_checked
        )
        try:
            self._programs = {1: self._executor.prepare(plan)}
        except BaseException:
            self._executor.close()
            raise

    def run(self, repeats: int) -> float:
        """Seconds per call, of `repeats` calls in one submit."""
        if repeats not in self._programs:
            plan = self._programs[1].plan
            many = replace(plan, dispatches=plan.dispatches * repeats)
            self._programs[repeats] = self._executor.prepare(many)
        program: Program = self._programs[repeats]
        with self._gpu.errors(f"autotune: {self.name}"):
            # Not timed: it is Python here, and C++ when a plan is replayed.
            commands = self._executor.record(program)
            start = self._clock()
            self._gpu.compute(commands)
            return (self._clock() - start) / repeats

    def close(self) -> None:
        self._executor.close()


def _fastest(
    trials: Sequence[_Trial], gain: float = _GAIN
) -> tuple[str, dict[str, float]]:
    """The name of the fastest form, and the microseconds of each."""
    for trial in trials:
        trial.run(1)  # the driver compiles on first use
        trial.best = min(trial.run(1) for _ in range(_TRIES))
    first = trials[0]
    racing = [t for t in trials if t.best <= _HOPELESS * first.best]
    repeats = 1 + min(int(_SECONDS / max(first.best, 1e-6)), _MOST_REPEATS)
    # In turn, so that whatever disturbs the machine disturbs all of them.
    rounds = [[trial.run(repeats) for trial in racing] for _ in range(_ROUNDS)]
    fastest = first
    for trial, times in zip(racing, zip(*rounds)):
        trial.best = statistics.median(times)
        wins = sum(own <= gain * other[0] for own, other in zip(times, rounds))
        if wins >= _MOST and trial.best < fastest.best:
            fastest = trial
    return fastest.name, {t.name: round(t.best * 1e6, 2) for t in trials}


def alone(plan: Plan, call: int) -> Plan:
    """The dispatches of one op call as a plan, on zeroed buffers."""
    return unfilled(plan, [step for step in plan.dispatches if step.call == call])


def unfilled(plan: Plan, steps: Sequence[Dispatch]) -> Plan:
    """Some dispatches of a plan as a plan of their own, on zeroed buffers."""
    used = sorted({index for step in steps for index in step.buffers})
    place = {index: position for position, index in enumerate(used)}
    buffers = []
    for index in used:
        spec = plan.buffers[index]
        role = spec.role if spec.role in (Role.PARAMS, Role.STATUS) else Role.SCRATCH
        buffers.append(Buffer(role, spec.size, f"b{index}"))
    moved = [
        replace(step, buffers=tuple(place[index] for index in step.buffers))
        for step in steps
    ]
    status = place.get(plan.status, -1)
    return replace(
        plan,
        buffers=tuple(buffers),
        constants=(),
        dispatches=tuple(moved),
        inputs=(),
        outputs=(),
        status=status,
        choices=(),
    )


def device_key(gpu: Device, is_checked: bool = False) -> str:
    """What a measurement holds for: device, driver, host, version of kernels and
    whether they have all checks."""
    host = f" | {_processor()}, {os.cpu_count()} cores" if gpu.caps.is_cpu else ""
    version = f"executorch_webgpu {__version__} {_kernels_hash()}"
    checked = is_checked or not shader_modules.can_omit_counters()
    return f"{gpu.identity}{host} | {version}" + " | checked" * checked


@functools.cache
def _processor() -> str:
    """The model of the CPU, which a software driver does not report."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line for line in text.splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.machine()


@functools.cache
def _kernels_hash() -> str:
    """A hash of every file that decides the text of a kernel."""
    digest = hashlib.sha256()
    for room in ("ir", "plan", "ops", "wgsl"):
        folder = Path(str(resources.files(f"executorch_webgpu.{room}")))
        for item in sorted((*folder.rglob("*.py"), *folder.rglob("*.wgsl"))):
            digest.update(item.relative_to(folder).as_posix().encode())
            digest.update(item.read_bytes())
    return digest.hexdigest()[:12]
