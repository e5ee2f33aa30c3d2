"""Choices that are measured: which of a kernel's forms is the fastest here.

An op function offers forms that compute the same (`Graph.choose`); without
measurements it gets the first, so plans depend on nothing but shapes and device.
With the option `autotune`, a form is chosen by timing: all forms of one call run
alone, on the device, with buffers of zeros, once per device, driver, version of
our kernels, kernel and class of shapes. The results are kept in a file of the
user's.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

from . import __version__, ir
from .device import Device
from .errors import WebGPUError
from .executor import Program, WgpuExecutor
from .plan import Buffer, Choice, Plan, Role
from .planner import Planner
from .tuning_file import Measured, TuningFile

_logger = logging.getLogger("executorch_webgpu")

# Another form than the first must be faster by this much: the first was chosen
# for reasons, and times are noisy.
_GAIN = 0.95
# A form so much slower than the first in its first run is not run again.
_HOPELESS = 4.0
_ROUNDS = 7
# What is timed at once, so that the cost of a submit does not hide the kernel's.
_SECONDS = 0.002
_MOST_REPEATS = 64

_Make = Callable[[Planner], Plan]


class TunedPlanner:
    """A Planner whose plans use the fastest forms, measured when first met."""

    def __init__(self, graph: ir.Graph, gpu: Device, path: Path) -> None:
        self._graph = graph
        self._gpu = gpu
        self._file = TuningFile(path, device_key(gpu))
        self._planner = Planner(graph, gpu.caps, self._file.choices())

    def upper_bound(self) -> Plan:
        return self._settled(Planner.upper_bound)

    def plan(self, inputs: Sequence[tuple[int, ...] | int]) -> Plan:
        return self._settled(lambda planner: planner.plan(inputs))

    def _settled(self, make: _Make) -> Plan:
        """The plan after everything it chooses between has been measured."""
        tuned = self._planner.tuned
        while True:
            plan = make(self._planner)
            # A form may bring choices of its own, so look again.
            unknown = [c for c in plan.choices if c.key not in tuned]
            if not unknown:
                return plan
            for choice in unknown:
                measured = self._measure(make, choice)
                tuned[choice.key] = measured.best
                self._file.add(choice.key, measured)

    def _measure(self, make: _Make, choice: Choice) -> Measured:
        trials = self._trials(make, choice)
        try:
            return Measured(*_fastest(trials))
        finally:
            for trial in trials:
                trial.close()

    def _trials(self, make: _Make, choice: Choice) -> list[_Trial]:
        """The forms that work, ready to run; the first is always among them."""
        trials: list[_Trial] = []
        for name in choice.names:
            forced = {**self._planner.tuned, choice.key: name}
            try:
                plan = make(Planner(self._graph, self._gpu.caps, forced))
                trials.append(_Trial(name, self._gpu, alone(plan, choice.call)))
            except WebGPUError as error:
                if not trials:
                    raise
                _logger.warning("autotune: %s cannot be %s: %s", choice, name, error)
        return trials


class _Trial:
    """One form of one call, with GPU objects of its own."""

    def __init__(self, name: str, gpu: Device, plan: Plan) -> None:
        self.name = name
        self.best = float("inf")
        self._gpu = gpu
        self._executor = WgpuExecutor(gpu, "autotune", lambda key: None)
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
        start = time.perf_counter()
        self._executor.play(program, [], [])
        # Without outputs nothing else waits for the work.
        self._gpu.finish()
        return (time.perf_counter() - start) / repeats

    def close(self) -> None:
        self._executor.close()


def _fastest(trials: Sequence[_Trial]) -> tuple[str, dict[str, float]]:
    """The name of the fastest form, and the microseconds of each."""
    for trial in trials:
        trial.run(1)  # the driver compiles on first use
        trial.best = trial.run(1)
    first = trials[0]
    racing = [t for t in trials if t.best <= _HOPELESS * first.best]
    repeats = 1 + min(int(_SECONDS / max(first.best, 1e-6)), _MOST_REPEATS)
    times: dict[str, list[float]] = {trial.name: [] for trial in racing}
    # In turn, so that whatever disturbs the machine disturbs all of them.
    for _ in range(_ROUNDS):
        for trial in racing:
            times[trial.name].append(trial.run(repeats))
    for trial in racing:
        trial.best = min(times[trial.name])
    fastest = min(trials, key=lambda trial: trial.best)
    if fastest.best > _GAIN * first.best:
        fastest = first
    return fastest.name, {t.name: round(t.best * 1e6, 2) for t in trials}


def alone(plan: Plan, call: int) -> Plan:
    """The plan of one op call: its dispatches, on buffers that nobody fills."""
    steps = [step for step in plan.dispatches if step.call == call]
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


def device_key(gpu: Device) -> str:
    """What a measurement is true of."""
    return f"{gpu.identity} | executorch_webgpu {__version__} {_kernels_hash()}"


@functools.cache
def _kernels_hash() -> str:
    """Of everything that decides a kernel's text."""
    digest = hashlib.sha256()
    for package in (__package__, f"{__package__}.ops", f"{__package__}.wgsl"):
        files = resources.files(package).iterdir()
        for item in sorted(files, key=lambda file: file.name):
            if item.name.endswith((".py", ".wgsl")):
                digest.update(item.name.encode())
                digest.update(item.read_bytes())
    return digest.hexdigest()[:12]
