"""The pytest plugin of `python test/opinfo`: options, records, and the summary.

With `--record`, each result is a line of that file, and what has one is not run again:
a run that was stopped goes on where it was. A process that a kernel takes down is
replaced by pytest-xdist, and recorded as the failure of the op that it ran.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from . import results
from .cases import cases
from .outcome import FAILED
from .results import ERRORS, Result, key_of
from .samples import DTYPES

_DONE = "opinfo_done"
# Those of an op that the docs are of.
_SAMPLES = 6


def pytest_addoption(parser: pytest.Parser) -> None:
    kinds = [*DTYPES, ERRORS]
    parser.addoption("--dtype", action="append", choices=kinds, default=[])
    parser.addoption("--samples", type=int, default=_SAMPLES, help="of an op; 0: all")
    parser.addoption("--record", help="a file of results, to go on with")
    parser.addoption("--write", action="store_true", help="the docs, once all ran")


def pytest_configure(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", None)
    plugin = _Chosen(worker[_DONE]) if worker else _Recorder(config)
    config.pluginmanager.register(plugin)


class _Chosen:
    """Leaves out the tests that have a result."""

    def __init__(self, done: list[str]) -> None:
        self.done = done

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        done = set(self.done)
        items[:] = [item for item in items if _key(item.nodeid) not in done]


def _key(nodeid: str) -> str:
    """The key of a test's result: what is in its brackets."""
    return nodeid.partition("[")[2].removesuffix("]")


class _Recorder(_Chosen):
    """Collects the results; with pytest-xdist, in the controller."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        name = config.getoption("--record")
        self.path = Path(name) if name else None
        self.results = results.read(self.path) if self.path else {}
        super().__init__(sorted(self.results))
        self.unlike: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        # As it was at the start: a worker that replaces another collects the same.
        node.workerinput[_DONE] = self.done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        lines = [str(text) for key, text in report.user_properties if key == "opinfo"]
        if report.when == "call" and lines:
            self._keep(Result.parse(lines[-1]))
        elif report.failed:
            op, _, dtype = _key(report.nodeid).rpartition("-")
            self._keep(Result(op, dtype, {FAILED: 1}, [report.longreprtext[-500:]]))

    def _keep(self, result: Result) -> None:
        self.results[result.key] = result
        if self.path:
            results.append(self.path, result)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        everything = self.config.getoption("--samples") == _SAMPLES and all(
            key_of(name, dtype) in self.results for name, dtype in cases()
        )
        if everything:
            write = self.config.getoption("--write")
            self.unlike = results.unlike([*self.results.values()], write)
        failed = any(result.kind == FAILED for result in self.results.values())
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.done:
            session.exitstatus = pytest.ExitCode.OK
        if failed or self.unlike:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("OpInfo")
        found = [*self.results.values()]
        for line in results.section(found).splitlines():
            write(line)
        for name in self.unlike:
            write(f"docs/{name} differs: --write writes it")
        reasons = Counter(reason for r in found for reason in r.reasons)
        for reason, count in reasons.most_common(20):
            write(f"{count:5} {reason[:150]}")
        for result in found:
            if result.kind == FAILED:
                write(f"failed: {result.key}: {'; '.join(result.reasons)[:300]}")
