"""What `bench` has measured, as Markdown tables or for JSON; it measures nothing."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .engines import OURS
from .markdown import byte_count, mean_and_spread, number, table
from .worker import Call, Memory, Start

PARTS = ("upload", "gpu", "read", "host")
_TITLES = {"upload": "upload", "gpu": "GPU", "read": "read-back", "host": "host"}
_PERCENTS = (50, 90, 99)


@dataclass
class Measured:
    """One engine in one case."""

    engine: str
    start: Start
    memory: Memory | None = None
    # By test: "run", or of a language model "pp64" and "tg128".
    calls: dict[str, list[Call]] = field(default_factory=dict)
    difference: float = 0.0  # of outputs to ours, relative to the largest of these


@dataclass
class Case:
    """All engines on the same inputs."""

    inputs: list[str]  # sizes, or an integer
    measured: list[Measured] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)  # by test


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent are not above: one that was measured."""
    ordered = sorted(values)
    return ordered[-(-len(ordered) * percent // 100) - 1]


def parts(calls: Sequence[Call]) -> dict[str, list[float]] | None:
    """By part, its seconds in each call; None where they are not told."""
    found: dict[str, list[float]] = {part: [] for part in PARTS}
    for call in calls:
        if call.upload is None or call.gpu is None or call.read is None:
            return None
        host = call.total - call.upload - call.gpu - call.read
        for part, seconds in zip(PARTS, (call.upload, call.gpu, call.read, host)):
            found[part].append(seconds)
    return found


@dataclass
class Told:
    """A program with its cases."""

    program: Path
    size: int
    method: str
    cases: list[Case]

    @property
    def adapter(self) -> str:
        return self.cases[0].measured[0].start.adapter

    @property
    def is_compared(self) -> bool:
        return len(self.cases[0].measured) > 1

    def text(self) -> str:
        heading = (
            f"{self.program}, {byte_count(self.size)}, {self.method}, on"
            f" {self.adapter or 'no GPU'}"
        )
        tables = [self._rates(), self._starts()] if self._is_llm else [self._times()]
        return "\n\n".join([heading, *tables, self._parts(), self._memory()])

    def as_dict(self) -> dict[str, Any]:
        return {
            "program": str(self.program),
            "bytes": self.size,
            "method": self.method,
            "adapter": self.adapter,
            "cases": [
                {
                    "inputs": case.inputs,
                    "engines": [_as_dict(case, each) for each in case.measured],
                }
                for case in self.cases
            ],
        }

    @property
    def _is_llm(self) -> bool:
        return bool(self.cases[0].tokens)

    def _rows(self) -> Iterator[tuple[Case, Measured, str, list[Call]]]:
        for case in self.cases:
            for each in case.measured:
                for test, calls in each.calls.items():
                    yield case, each, test, calls

    def _compared(self, case: Case, each: Measured, test: str) -> list[str]:
        if not self.is_compared:
            return []
        if each.engine == OURS:
            return ["1", "-"]
        return [number(_ratio(case, each, test)), f"{each.difference:.1e}"]

    def _times(self) -> str:
        header = ["engine", "inputs", "load ms", "first ms", "runs", "ms"]
        header += [f"p{percent}" for percent in _PERCENTS]
        if self.is_compared:
            header += ["ratio to ours", "differs"]
        rows = []
        for case, each, test, calls in self._rows():
            times = [1e3 * call.total for call in calls]
            rows.append(
                [
                    each.engine,
                    ", ".join(case.inputs),
                    *_start(each),
                    str(len(times)),
                    mean_and_spread(times),
                    *(number(percentile(times, percent)) for percent in _PERCENTS),
                    *self._compared(case, each, test),
                ]
            )
        return table(header, rows)

    def _rates(self) -> str:
        header = ["engine", "test", "runs", "t/s"]
        if self.is_compared:
            header += ["ratio to ours", "differs"]
        rows = [
            [
                each.engine,
                test,
                str(len(calls)),
                mean_and_spread(_rates(case, test, calls)),
                *self._compared(case, each, test),
            ]
            for case, each, test, calls in self._rows()
        ]
        return table(header, rows)

    def _starts(self) -> str:
        rows = [
            [each.engine, *_start(each)]
            for case in self.cases
            for each in case.measured
        ]
        return table(["engine", "load ms", "first prompt ms"], rows)

    def _parts(self) -> str:
        """Of a run, or of a token."""
        header = ["inputs", *(f"{_TITLES[part]} ms" for part in PARTS)]
        if self._is_llm:
            header[0] = "token of"
        rows = []
        for case, each, test, calls in self._rows():
            if each.engine == OURS:
                found = parts(calls)
                count = case.tokens.get(test, 1)
                cells = ["-"] * len(PARTS)
                if found is not None:
                    cells = [
                        mean_and_spread([1e3 * seconds / count for seconds in each])
                        for each in found.values()
                    ]
                name = test if self._is_llm else ", ".join(case.inputs)
                rows.append([name, *cells])
        return table(header, rows)

    def _memory(self) -> str:
        header = ["engine", "GPU MB", "resident MB", "of these by load and runs"]
        rows = []
        for case in self.cases:
            for each in case.measured:
                assert each.memory is not None
                peak, before = each.memory.peak_resident, each.start.resident_before
                buffers = each.memory.gpu_bytes
                gpu = number(buffers / 1e6) if each.engine == OURS else "-"
                added = number((peak - before) / 1e6)
                rows.append([each.engine, gpu, number(peak / 1e6), added])
        return table(header, rows)


def _start(each: Measured) -> list[str]:
    load = each.start.load_seconds
    first = number(1e3 * each.start.first_seconds)
    return ["-" if load is None else number(1e3 * load), first]


def _ratio(case: Case, each: Measured, test: str) -> float:
    """The median time of an engine in ours."""
    medians = [
        percentile([call.total for call in one.calls[test]], 50)
        for one in (each, case.measured[0])
    ]
    return medians[0] / medians[1]


def _rates(case: Case, test: str, calls: Sequence[Call]) -> list[float]:
    return [case.tokens[test] / call.total for call in calls]


def _as_dict(case: Case, each: Measured) -> dict[str, Any]:
    assert each.memory is not None
    told: dict[str, Any] = {
        "engine": each.engine,
        "load_seconds": each.start.load_seconds,
        "first_seconds": each.start.first_seconds,
        "resident_bytes_before": each.start.resident_before,
        "peak_resident_bytes": each.memory.peak_resident,
    }
    if each.engine == OURS:
        told["gpu_bytes"] = each.memory.gpu_bytes
    else:
        told["difference"] = each.difference
    told["tests"] = {test: _test(case, each, test) for test in each.calls}
    return told


def _test(case: Case, each: Measured, test: str) -> dict[str, Any]:
    calls = each.calls[test]
    times = [call.total for call in calls]
    told: dict[str, Any] = {
        "runs": len(times),
        "mean_seconds": statistics.fmean(times),
        "stdev_seconds": statistics.stdev(times) if len(times) > 1 else 0.0,
    }
    told |= {f"p{each}_seconds": percentile(times, each) for each in _PERCENTS}
    if test in case.tokens:
        told["tokens"] = case.tokens[test]
        told["tokens_per_second"] = _rates(case, test, calls)
    if each.engine != OURS:
        told["ratio_to_ours"] = _ratio(case, each, test)
    found = parts(calls)
    if found is not None:
        told["mean_seconds_of"] = {
            part: statistics.fmean(seconds) for part, seconds in found.items()
        }
    return told
