"""What becomes of an op's calls.

A program that does not run, or gives something else than eager, is a failure of ours
if all of it was delegated, or if ExecuTorch alone does better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from executorch_webgpu import WebGPUPartitioner
from executorch_webgpu.export.partitioner import Report

from .judge import difference
from .pipeline import DELEGATE, EXPORT, RUNTIME, WIDE, Refused, run
from .samples import Call, SideBySide

WHOLE = "whole"
FALLBACK = "fallback"
FAILED = "failed"
# Besides these, an outcome may be any kind of a refusal.
RUNS = (WHOLE, FALLBACK)


@dataclass(frozen=True)
class Outcome:
    """A kind, and why: a sentence each."""

    kind: str
    reasons: tuple[str, ...] = ()


def outcomes(calls: Sequence[Call]) -> list[Outcome]:
    """Of every call: as one program if that runs, else one by one."""
    together = _of(SideBySide(calls), WebGPUPartitioner())
    if together.kind in RUNS:
        return [together] * len(calls)
    known: dict[Outcome, Outcome] = {}
    alone = [_judged([call], known) for call in calls]
    if all(found.kind in RUNS for found in alone):
        return [_judged(calls, known)] * len(calls)
    return alone


def _judged(calls: Sequence[Call], known: dict[Outcome, Outcome]) -> Outcome:
    """What becomes of the calls; `known` has what ExecuTorch alone made of others."""
    module, partitioner = SideBySide(calls), WebGPUPartitioner()
    found = _of(module, partitioner)
    if found.kind in (*RUNS, FAILED, EXPORT, WIDE):
        return found
    report = partitioner.report
    alone = bool(report.delegated) and report.complete
    if found.kind == DELEGATE or (found.kind == RUNTIME and alone):
        return Outcome(FAILED, found.reasons)
    if found not in known:
        runs = _of(module, None).kind in RUNS
        failed = Outcome(FAILED, (*found.reasons, "runs without the delegate"))
        known[found] = failed if runs else found
    return known[found]


def _of(module: SideBySide, partitioner: WebGPUPartitioner | None) -> Outcome:
    try:
        ran = run(module, partitioner)
    except Refused as refused:
        return Outcome(refused.kind, (refused.reason,))
    wrong = _wrong(module.calls, ran.results)
    if wrong:
        return Outcome(RUNTIME, wrong)
    if partitioner is None:
        return Outcome(WHOLE)
    return _where(partitioner.report, ran.left)


def _wrong(calls: Sequence[Call], results: Sequence[Any]) -> tuple[str, ...]:
    """What is unlike eager's results: a sentence for each call."""
    wrong, taken = [], 0
    for call in calls:
        count = len(call.eager())
        text = difference(call, results[taken : taken + count])
        if text:
            wrong.append(f"{call}: {text}")
        taken += count
    return tuple(wrong)


def _where(report: Report, left: set[str]) -> Outcome:
    """Whether all was delegated; if not, what stayed on the CPU and why."""
    reasons = {fallback.op: fallback.reason for fallback in report.fallbacks}
    silent = sorted(name for name in left if not reasons.get(name))
    if silent:
        return Outcome(FAILED, tuple(f"{name}: no reason" for name in silent))
    told = sorted({f"{item.op}: {item.reason}" for item in report.fallbacks})
    return Outcome(FALLBACK if told else WHOLE, tuple(told))
