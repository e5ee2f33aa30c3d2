"""Captures to numbers: what each side's kernels are, do and may take, by case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from .capture import Capture, Dispatch
from .cases import Case
from .estimate import Estimate, Tally, estimate, time_wave
from .kernel import Statistics
from .targets import LATENCIES, Assumed, Target
from .wave import Uncountable

MIDDLE = Assumed().load


@dataclass(frozen=True)
class Launched:
    """One dispatch: facts of its kernel, counts of its first wave, estimates."""

    label: str
    groups: tuple[int, int, int]
    statistics: Statistics
    moved: float  # bytes: of what is bound, no more than its waves load and store
    tally: Tally  # its clocks are for the middle latency
    estimates: dict[int, Estimate]  # by latency of a load

    def in_model(self, target: Target, latency: int = MIDDLE) -> tuple[float, str]:
        """Microseconds without the launch, and what bounds them. Nobody knows what a
        model must move, but each dispatch moves its operands."""
        made, moved = self.estimates[latency], self.moved / target.gigabytes / 1e3
        if moved > made.microseconds:
            return moved, "memory"
        return made.microseconds, made.bound


@dataclass(frozen=True)
class Side:
    """Everything that one side launches for a case."""

    launched: tuple[Launched, ...]
    failed: str = ""

    def microseconds(self, case: Case, target: Target, latency: int = MIDDLE) -> float:
        """One dispatch after the other, but no faster than memory is."""
        if case.is_model:
            times = [one.in_model(target, latency)[0] for one in self.launched]
            return sum(times) + len(times) * Assumed().launch
        times = [one.estimates[latency].microseconds for one in self.launched]
        return max(sum(times), floor(case, target))

    @property
    def main(self) -> Launched:
        """The dispatch that takes longest."""
        return max(self.launched, key=lambda one: one.estimates[MIDDLE].microseconds)


@dataclass(frozen=True)
class Row:
    """A case on a target; sides are None where nobody asked for them."""

    case: Case
    target: Target
    ours: Side  # compiled by naga, as wgpu does
    theirs: Side | None
    tint: Side | None = None  # ours, compiled by Tint, as browsers do

    def ratio(self, latency: int = MIDDLE) -> float | None:
        """Theirs over ours: above 1 we are faster."""
        if not self.theirs or self.ours.failed or self.theirs.failed:
            return None
        theirs = self.theirs.microseconds(self.case, self.target, latency)
        return theirs / self.ours.microseconds(self.case, self.target, latency)

    def tint_ratio(self, latency: int = MIDDLE) -> float | None:
        """Tint's over naga's: above 1 a browser is slower."""
        if not self.tint or self.ours.failed or self.tint.failed:
            return None
        tint = self.tint.microseconds(self.case, self.target, latency)
        return tint / self.ours.microseconds(self.case, self.target, latency)


def floor(case: Case, target: Target) -> float:
    """Microseconds that memory needs for the case's operands and results."""
    return case.bytes / target.gigabytes / 1e3


def useful(case: Case, one: Launched) -> float:
    """Multiply-adds that the case needs, of those its vector instructions could do."""
    waves = one.estimates[MIDDLE].waves
    return case.fma / (waves * one.statistics.wave * one.tally.vector_alu)


class Measurer:
    """One capture; equal dispatches are played once."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self._known: dict[Dispatch, Launched] = {}

    def side(self, case: Case, failed: str = "") -> Side:
        mine = [one for one in self.capture.dispatches if one.case == case.name]
        if not mine:
            return Side((), failed or "nothing was dispatched")
        try:
            return Side(tuple(self._launched(one) for one in mine), failed)
        except Uncountable as error:
            return Side((), str(error))

    def _launched(self, dispatch: Dispatch) -> Launched:
        key = replace(dispatch, case="")
        if key not in self._known:
            self._known[key] = self._measure(dispatch)
        return self._known[key]

    def _measure(self, dispatch: Dispatch) -> Launched:
        made, target = self.capture.compiled(dispatch.kernel), self.capture.target
        trace = self.capture.trace(dispatch)
        wave = made.statistics.wave
        tallies = {
            latency: time_wave(made.kernel, trace, wave, target, Assumed(load=latency))
            for latency in LATENCIES
        }
        threads, groups = prod(made.interface.threads), prod(dispatch.groups)
        estimates = {
            latency: estimate(tally, made.statistics, threads, groups, target)
            for latency, tally in tallies.items()
        }
        tally = tallies[MIDDLE]
        bound = sum(size for size, _ in dispatch.bindings)
        moved = min(bound, estimates[MIDDLE].waves * tally.moved)
        return Launched(
            dispatch.label, dispatch.groups, made.statistics, moved, tally, estimates
        )


def as_json(rows: Sequence[Row]) -> list[dict[str, object]]:
    """For programs: microseconds by latency, the kernels, and why a side is missing."""

    def side(row: Row, which: Side | None) -> object:
        if which is None or which.failed:
            return {"failed": which.failed if which else "not asked for"}
        return {
            "kernels": [one.label for one in which.launched],
            "bound": which.main.estimates[MIDDLE].bound,
            "microseconds": {
                latency: which.microseconds(row.case, row.target, latency)
                for latency in LATENCIES
            },
        }

    return [
        {
            "case": row.case.name,
            "target": row.target.name,
            "ours": side(row, row.ours),
            "theirs": side(row, row.theirs),
            "tint": side(row, row.tint),
        }
        for row in rows
    ]
