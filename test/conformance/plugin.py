"""The pytest plugin that runs ExecuTorch's backend suite against us.

It replaces the suite's list of flows by ours before the suite is imported; the
installed package stays as it is. At the end it prints what passed and what was
left on the CPU, and fails the run if a test failed, if too little was delegated,
or if something was left or skipped for a reason that is not in exceptions.py.
"""

from __future__ import annotations

import math
import os
import random
import unittest
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# Torch's threads spin, which two cores that also run the driver cannot afford.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import fast_export
import pytest
import torch
from executorch.backends.test.suite import flow, runner

from executorch_webgpu import last_error
from executorch_webgpu.runtime import device

from . import flows
from .exceptions import EXCEPTIONS, SKIPPED

_PROPERTY = "webgpu_conformance"
_DOCS = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"


def _our_flows() -> dict[str, flow.TestFlow]:
    return {item.name: item for item in flows.FLOWS}


flow.all_flows = _our_flows
# The suite skips every three-dimensional convolution, because the CPU kernels
# have none; ours run.
runner._graph_has_unsupported_patterns = lambda program: False
# What the suite asks of no backend, and ours does.
_ASKED = {
    "NaN and Inf are not enforced for backends.",
    "In place activations aren't properly defunctionalized yet.",
}
_skip = unittest.skip


def _skip_what_cannot_work(reason: str) -> Callable[[Any], Any]:
    return (lambda test: test) if reason in _ASKED else _skip(reason)


unittest.skip = _skip_what_cannot_work


@dataclass
class Subtest:
    """One model of one test."""

    test: str
    index: int
    result: str
    error: str
    left: list[str]  # ops on the CPU, with their reasons
    decibels: float  # of the results over their distance from eager's

    @property
    def is_complete(self) -> bool:
        return not self.left


@dataclass
class Totals:
    outcomes: Counter[str] = field(default_factory=Counter)
    subtests: list[Subtest] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # tests

    @property
    def passed(self) -> list[Subtest]:
        return [subtest for subtest in self.subtests if subtest.result == "Pass"]

    @property
    def undocumented(self) -> list[str]:
        """Ops on the CPU that are no exception we know of."""
        left = {op for subtest in self.passed for op in subtest.left}
        return sorted(op for op in left if op not in EXCEPTIONS)

    @property
    def skipped_without_reason(self) -> list[str]:
        return sorted(test for test in self.skipped if test not in SKIPPED)

    @property
    def share(self) -> float:
        """Of the passing subtests, the part with nothing left on the CPU."""
        complete = sum(subtest.is_complete for subtest in self.passed)
        return complete / len(self.passed) if self.passed else 0.0


# Of this process; with pytest-xdist the controller sees every report.
_TOTALS = Totals()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minimum-delegated", type=float, default=0.95)
    parser.addoption("--documented-as", help="the row of docs/conformance.md to check")


def pytest_sessionstart(session: pytest.Session) -> None:
    torch.set_num_threads(1)
    device.get_device()
    fast_export.start()


def pytest_collection_finish(session: pytest.Session) -> None:
    fast_export.imported()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    flows.reports.clear()
    # The suite seeds what it draws by a test's name and by this.
    random.seed(0)
    torch.manual_seed(0)
    try:
        return (yield)
    finally:
        used = getattr(item, "funcargs", {}).get("test_runner")
        if used is not None:
            found = [asdict(subtest) for subtest in _subtests(used)]
            item.user_properties.append((_PROPERTY, found))


def _subtests(used: Any) -> Generator[Subtest]:
    """What the suite recorded of a test, with our partitioner's reasons."""
    reports = list(flows.reports)
    for record in used._results:
        report = reports.pop(0) if record.lower_time is not None else None
        reasons = {f.op: f.reason for f in report.fallbacks} if report else {}
        # The suite's own count decides; sizes are the host's integers.
        names = [
            (name if "." in name else f"{name}.default").replace("::", ".")
            for name in record.undelegated_op_counts or ()
            if not name.startswith("aten::sym_")
        ]
        yield Subtest(
            record.name,
            record.subtest_index,
            record.result.to_short_str(),
            _error(record),
            [f"{name}: {reasons.get(name, '')}" for name in sorted(names)],
            _decibels(record.tensor_error_statistics),
        )


def _error(record: Any) -> str:
    """The suite's error and, of one at run time, what our backend said."""
    if record.error is None:
        return ""
    ours = last_error() if "0x" in str(record.error) else None
    return f"{str(record.error)[:300]} {ours or ''}".strip()


def _decibels(outputs: Any) -> float:
    """The worst output's signal over noise; infinite where nothing is to compare."""
    ratios = [output.sqnr for output in outputs if output.sqnr is not None]
    return min((r for r in ratios if not math.isnan(r)), default=math.inf)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome == "skipped" or report.failed:
        _TOTALS.outcomes[report.outcome] += 1
        if report.skipped:
            _TOTALS.skipped.append(report.nodeid.split("::")[-1].split("[")[0])
        for key, found in report.user_properties:
            if key == _PROPERTY:
                _TOTALS.subtests += [Subtest(**item) for item in found]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if hasattr(session.config, "workerinput") or exitstatus:
        return
    too_little = _TOTALS.share < session.config.getoption("--minimum-delegated")
    unlike = _unlike_the_docs(session.config)
    if too_little or unlike or _TOTALS.undocumented or _TOTALS.skipped_without_reason:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _unlike_the_docs(config: pytest.Config) -> str:
    """The row of the docs that is not what came out; empty if it is."""
    name = config.getoption("--documented-as")
    if name is None:
        return ""
    counts = [_TOTALS.outcomes[kind] for kind in ("passed", "failed", "skipped")]
    row = " | ".join(["", name, *map(str, counts), f"{_TOTALS.share:.1%}", ""]).strip()
    return "" if row in _DOCS.read_text().splitlines() else row


def pytest_terminal_summary(
    terminalreporter: Any, exitstatus: int, config: pytest.Config
) -> None:
    totals, outcomes = _TOTALS, _TOTALS.outcomes
    write = terminalreporter.write_line
    complete = sum(subtest.is_complete for subtest in totals.passed)
    terminalreporter.section("conformance")
    write(
        f"tests: {outcomes['passed']} passed, {outcomes['failed']} failed,"
        f" {outcomes['skipped']} skipped"
    )
    write(
        f"subtests that passed: {len(totals.passed)}, with nothing left on the CPU:"
        f" {complete} ({totals.share:.1%})"
    )
    worst = min(totals.passed, key=lambda subtest: subtest.decibels, default=None)
    if worst is not None:
        where = f"{worst.test}, model {worst.index}"
        write(f"least signal over noise: {worst.decibels:.0f} dB: {where}")
    left: Counter[str] = Counter()
    for subtest in totals.passed:
        for reason in subtest.left:
            left[reason] += 1
    for reason, count in left.most_common():
        known = "" if reason not in totals.undocumented else " (not in the exceptions)"
        write(f"  {count:4} {reason}{known}")
    unlike = _unlike_the_docs(config)
    if unlike:
        write(f"  docs/conformance.md must have the row {unlike}")
    for test in totals.skipped_without_reason:
        write(f"  skipped, and not in the exceptions: {test}")
    for subtest in totals.subtests:
        if subtest.result != "Pass":
            where = f"{subtest.test}, model {subtest.index}"
            write(f"  {subtest.result}: {where}: {subtest.error}")
