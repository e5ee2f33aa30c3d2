"""Three ways to play one file: each loads it, calls it, and tells what came out.

`Python` plans the graph, or takes the plans of the file; `Cpp` is a process without
Python. What they come to are `Outcome`s, which are compared as they are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import driver
import pytest
from driver import Outcome, described
from executorch.runtime import Method, Runtime

from executorch_webgpu import ir, options
from executorch_webgpu.plan.caps import Caps
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.portable.profiles import profiles_for
from executorch_webgpu.runtime import delegate

Inputs = Sequence[Any]  # tensors and ints


# Options of the backend that are flags, by name.
Flags = Mapping[str, bool]


class Python:
    """In this process: with plans of "graph" or of "file"."""

    def __init__(self, plans: str, adapter: str = "") -> None:
        self.options = {"plans": plans, "adapter": adapter}
        self._lines = _Lines()
        self._program: Any = None
        self._method: Method | None = None

    def load(
        self, file: Path, method: str, weights: Path | None, flags: Flags
    ) -> Outcome:
        self.unload()
        data = {"data_path": weights} if weights else {}
        given = {**self.options, **flags}
        with _options(given), _planned_as_exported(), self._lines.kept():
            try:
                self._program = Runtime.get().load_program(file, **data)
                self._method = self._program.load_method(method)
            except RuntimeError as error:
                return self._failed(error)
        return Outcome()

    def call(self, inputs: Inputs) -> Outcome:
        assert self._method is not None
        with _planned_as_exported(), self._lines.kept():
            try:
                results = self._method.execute(list(inputs))
            except RuntimeError as error:
                return self._failed(error)
        return Outcome(tuple(map(described, results)))

    def reset(self) -> None:
        delegate.reset_state()

    def unload(self) -> None:
        self._method = self._program = None

    def _failed(self, error: RuntimeError) -> Outcome:
        found = re.search(r"error:? 0x:?([0-9a-f]+)", str(error))
        assert found, str(error)
        return Outcome(code=int(found[1], 16), text=self._lines.last)


class _Lines(logging.Handler):
    """Keeps what the backend tells of a failure."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage().partition("\nTraceback (most recent call")[0]
        self.last = " ".join(text.split()).removeprefix("WebGPUBackend: ")

    @contextmanager
    def kept(self) -> Iterator[None]:
        logger = logging.getLogger("executorch_webgpu")
        level, self.last = logger.level, ""
        logger.addHandler(self)
        logger.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            logger.setLevel(level)
            logger.removeHandler(self)


@contextmanager
def _options(values: dict[str, Any]) -> Iterator[None]:
    """What is loaded inside has these options."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "_overrides", {**options._overrides, **values})
        yield


@contextmanager
def _planned_as_exported() -> Iterator[None]:
    """A graph is planned for the kind of device that the file's plans are for: this one
    may be a CPU, whose kernels sum in another order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delegate, "Planner", _planner)
        yield


def _planner(graph: ir.Graph, caps: Caps) -> Planner:
    fitting = (
        each
        for each in profiles_for(graph, caps.f16_accumulate)
        if each.f16 <= caps.f16
        and each.subgroups <= caps.subgroups
        and each.is_cpu <= caps.is_cpu
    )
    return Planner(graph, next(fitting))


class Cpp(driver.App):
    """In a process without Python."""

    def load(
        self, file: Path, method: str, weights: Path | None, flags: Flags
    ) -> Outcome:
        for name, value in flags.items():
            assert self.ask(f"set {name} bool {int(value)}") == "ok"
        outcome = self.command(f"load {file} {weights or ''}")
        return outcome if outcome.code else self.command(f"method {method}")

    def reset(self) -> None:
        assert self.ask("set reset_state bool 1") == "ok"
