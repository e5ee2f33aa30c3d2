"""Which part of an export is running, where that is shown, and what ours costs."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.emit import _emit_program
from executorch.exir.program import _program
from torch.export import ExportedProgram, exported_program

from executorch_webgpu import WebGPUPartitioner, progress
from executorch_webgpu.export import backend, partitioner, stages


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Counting(torch.nn.Module):
    """With a state, so that our rewrites have something to do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x * self.count


def lowered(exported: ExportedProgram) -> WebGPUPartitioner:
    made = WebGPUPartitioner()
    with torch.no_grad():
        to_edge_transform_and_lower(exported, partitioner=[made]).to_executorch()
    return made


@pytest.fixture(scope="module")
def exported() -> ExportedProgram:
    return torch.export.export(Counting(), (torch.ones(3),))


# Somewhere inside of each stage.
INSIDE: dict[str, tuple[Any, str]] = {
    "decompose": (exported_program, "_decompose_exported_program"),
    "rewrite for WebGPU": (partitioner.fold_float64, "fold"),
    "partition": (partitioner, "build_node"),
    "preprocess for WebGPU": (backend, "build"),
    "ExecuTorch's passes": (_program, "weights_to_outputs_pass"),
    "emit": (_emit_program, "_remove_non_user_outputs"),
}


def test_every_stage_is_known_by_the_stack(exported, monkeypatch):
    seen: dict[str, str] = {}

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            seen[name] = stages.current(sys._getframe())
            return function(*args, **kwargs)

        return call

    for name, (module, attribute) in INSIDE.items():
        monkeypatch.setattr(
            module, attribute, watched(name, getattr(module, attribute))
        )
    lowered(exported)
    assert seen == {name: name for name in INSIDE}


def test_what_is_called_by_nobody_known_is_no_stage():
    assert stages.current(sys._getframe()) == ""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", 0.02)
    monkeypatch.setattr(progress, "_EVERY", 0.01)


@contextmanager
def terminal() -> Iterator[Terminal]:
    """Stderr meanwhile; pytest sets it between fixtures and tests."""
    before, sys.stderr = sys.stderr, Terminal()
    try:
        yield sys.stderr
    finally:
        sys.stderr = before


def ended(limit: float = 10) -> bool:
    until = time.monotonic() + limit
    while progress.Progress.drawn and time.monotonic() < until:
        time.sleep(0.01)
    return not progress.Progress.drawn


def slowly(function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass
        return function(*args)

    return call


def test_a_terminal_sees_a_lowering_and_then_nothing(exported, impatient, monkeypatch):
    monkeypatch.setattr(backend, "build", slowly(backend.build, 0.2))
    with terminal() as screen:
        lowered(exported)
    assert ended()
    lines = screen.getvalue().split("\r\x1b[K")
    shown = "export preprocess for WebGPU "
    assert any(line.startswith(shown) for line in lines), lines
    assert lines[-1] == ""


def test_the_line_ends_with_a_lowering_that_fails(exported, impatient, monkeypatch):
    def fail(*args: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(backend, "build", slowly(fail, 0.2))
    with terminal() as screen, pytest.raises(RuntimeError, match="no"):
        lowered(exported)
    assert ended()
    assert "export preprocess for WebGPU" in screen.getvalue()


def test_a_line_that_is_there_is_the_only_one(exported, impatient, monkeypatch):
    monkeypatch.setattr(backend, "build", slowly(backend.build, 0.2))
    with terminal() as screen, stages.ExportProgress("mine"):
        lowered(exported)
        assert progress.Progress.drawn == 1
    assert ended()
    assert "\x1b[Kmine preprocess for WebGPU" in screen.getvalue()
    assert "\x1b[Kexport" not in screen.getvalue()


def test_no_terminal_gets_no_thread(exported, monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(stages, "ExportProgress", None)
    lowered(exported)
    assert "export" not in log.getvalue()


def test_our_seconds_are_in_the_report(exported, monkeypatch):
    before = lowered(exported).report.seconds
    monkeypatch.setattr(backend, "build", slowly(backend.build, 0.2))
    after = lowered(exported).report.seconds
    assert set(before) == {stages.REWRITE, stages.PARTITION, stages.PREPROCESS}
    assert 0 < before[stages.PREPROCESS] < after[stages.PREPROCESS] - 0.1


def test_a_program_with_states_is_functionalized_once(exported, monkeypatch):
    """By us, on ExecuTorch's behalf: it does not trace the whole program again."""
    tables: list[Any] = []
    traced = ExportedProgram.run_decompositions

    def counted(program: ExportedProgram, *args: Any, **kwargs: Any) -> Any:
        (table,) = args[:1] or (None,)
        tables.append(type(table) is dict and not table)
        return traced(program, *args, **kwargs)

    monkeypatch.setattr(ExportedProgram, "run_decompositions", counted)
    lowered(exported)
    assert tables.count(True) == 1
