"""Calls of a method, measured: what `profile` tells of, launch by launch.

Enters: a program and its inputs. Leaves: the launches of a call in order, each with its
time, what it moves and what it computes, so far as that is known.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import ir, last_error
from ..errors import WebGPUError
from ..ir import symbols
from ..plan import events, registry
from ..plan.plan import Plan
from ..progress import Progress
from ..runtime import timing
from ..runtime.timing import Timings

# Ops that read only some elements of an operand, whose number data decides.
_PICKING = (".indexing.", ".kv_cache", ".packed_embedding", ".embedding_bag")
# Of two layers in one.
_GATED = ("webgpu.gated_linear", "webgpu.gated_linear_packed")
_LINEAR = ("webgpu.linear_packed", "webgpu.linear_codes", "webgpu.linear_rounded")


@dataclass(frozen=True)
class Launch:
    """One dispatch of a call."""

    name: str
    delegate: int
    call: int  # of the delegate's graph
    op: str
    kernel: str
    grid: tuple[int, int, int]
    begin: float  # microseconds from the first launch of the shown run
    shown: float  # microseconds, in that run
    microseconds: float  # the median of all runs
    moved: int | None  # bytes of the tensors that it reads and writes
    # Multiply-adds of the op call, of all its launches together; None: not known.
    multiply_adds: int | None


@dataclass(frozen=True)
class Measured:
    """The launches of a call, and how they were timed."""

    adapter: str
    by_host: bool  # launches were submitted alone and timed by the host
    runs: int
    launches: list[Launch] = field(default_factory=list)

    @property
    def microseconds(self) -> float:
        return sum(each.microseconds for each in self.launches)

    def how(self) -> str:
        if self.by_host:
            return "each launch submitted alone and timed by the host"
        return "timed by the GPU, all launches of a call in one submit"


def measure(
    path: Path, method: str, inputs: Sequence[Any], runs: int, is_alone: bool
) -> Measured:
    """One call to compile kernels, and then those that count."""
    from executorch.runtime import Runtime

    before = last_error()
    found: list[list[timing.Call]] = []
    with timing.measuring(is_alone) as timings, Progress("profile", runs + 1) as shown:
        try:
            program = Runtime.get().load_program(str(path))
            loaded = program.load_method(method)
            for _ in range(runs + 1):
                timings.calls.clear()
                loaded.execute(list(inputs))
                found.append(list(timings.calls))
                shown.step()
        except RuntimeError as error:
            ours = last_error()
            said = str(error) if ours is None or ours == before else ours
            raise WebGPUError(f"{method}: {said.strip().splitlines()[-1]}") from error
    if not timings.delegates:
        raise WebGPUError(
            f"{method}: something must be on the GPU, got nothing; see `etwgpu inspect`"
        )
    made = _launches(timings, found[1:])
    return Measured(timings.adapter, timings.by_host, runs, made)


def _launches(timings: Timings, runs: list[list[timing.Call]]) -> list[Launch]:
    times = [
        [end - begin for call in run for begin, end in zip(call.begins, call.ends)]
        for run in runs
    ]
    if len({len(each) for each in times}) != 1:
        raise WebGPUError("profile: every run must do the same, got other launches")
    medians = [statistics.median(each) for each in zip(*times)]
    totals = [sum(each) for each in times]
    shown = runs[totals.index(statistics.median_low(totals))]
    first = min((call.begins[0] for call in shown if call.begins), default=0.0)
    made: list[Launch] = []
    for call in shown:
        graph = timings.delegates[call.delegate].graph
        for at, name in enumerate(events.launch_names(call.plan)):
            step = call.plan.dispatches[at]
            made.append(
                Launch(
                    name,
                    call.delegate,
                    step.call,
                    step.label,
                    call.plan.pipelines[step.pipeline].label,
                    step.groups,
                    (call.begins[at] - first) / 1e3,
                    (call.ends[at] - call.begins[at]) / 1e3,
                    medians[len(made)] / 1e3,
                    _moved(call.plan, at),
                    None if graph is None else _arithmetic(graph, step.call, call.plan),
                )
            )
    return made


def _moved(plan: Plan, at: int) -> int | None:
    found = registry.find(plan.dispatches[at].label)
    module = "" if found is None else found.function.__module__
    if not plan.traffic or any(part in f"{module}." for part in _PICKING):
        return None
    return plan.traffic[at]


def _arithmetic(graph: ir.Graph, index: int, plan: Plan) -> int | None:
    """Multiply-adds of an op call at the plan's sizes."""
    from ..export.multiply_adds import of_product

    if index >= len(graph.calls):
        return None

    def shape(value: int) -> tuple[int, ...]:
        dims = graph.values[value].shape
        return tuple(symbols.evaluate(dim, plan.symbols) for dim in dims)

    call = graph.calls[index]
    result = shape(call.outputs[0])
    given = [shape(arg.id) if isinstance(arg, ir.Ref) else arg for arg in call.args]
    base = call.op.split(".")[1]
    found = registry.find(call.op)
    if found is not None and any(
        part in f"{found.function.__module__}." for part in _PICKING
    ):
        return None
    if call.op in _GATED:
        two = of_product("linear", given, result)
        return None if two is None else 2 * two
    if call.op in _LINEAR:
        base = "linear"
    if call.op.startswith("webgpu.attention"):
        base = "sdpa"
    if call.op == "webgpu.attention_by_token":
        # Tokens are before heads.
        given = [
            (*each[:-3], each[-2], each[-3], each[-1])
            if isinstance(each, tuple)
            else each
            for each in given[:2]
        ]
    return of_product(base, given, result)
