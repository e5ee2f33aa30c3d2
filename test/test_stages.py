"""Which part of an export is running, where that is shown, and what ours costs."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.program import _program
from torch.export import ExportedProgram, exported_program

from executorch_webgpu import WebGPUPartitioner, progress
from executorch_webgpu.export import backend, fx_to_ir, partitioner, stages


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
    "emit": (_program, "emit_program"),
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
def screen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(progress, "_PATIENCE", 0.02)
    monkeypatch.setattr(progress, "_EVERY", 0.01)
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    return made


def ended(limit: float = 10) -> bool:
    until = time.monotonic() + limit
    while progress.Progress.drawn and time.monotonic() < until:
        time.sleep(0.01)
    return not progress.Progress.drawn


def test_a_terminal_sees_a_lowering_and_then_nothing(exported, screen):
    lowered(exported)
    assert ended()
    lines = screen.getvalue().split("\r\x1b[K")
    assert any(line.startswith("export partition") for line in lines), lines
    assert lines[-1] == ""


def test_the_line_ends_with_a_lowering_that_fails(exported, screen, monkeypatch):
    def fail(*args: Any) -> None:
        time.sleep(0.1)
        raise RuntimeError("no")

    monkeypatch.setattr(backend, "build", fail)
    with pytest.raises(RuntimeError, match="no"):
        lowered(exported)
    assert ended()
    assert "export preprocess for WebGPU" in screen.getvalue()


def test_a_line_that_is_there_is_the_only_one(exported, screen):
    with stages.ExportProgress("mine"):
        lowered(exported)
        assert progress.Progress.drawn == 1
    assert ended()
    assert "mine " in screen.getvalue()
    assert "export " not in screen.getvalue().replace("mine torch.export", "")


def test_no_terminal_gets_no_thread(exported, monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(stages, "ExportProgress", None)
    lowered(exported)
    assert "export" not in log.getvalue()


def test_our_seconds_are_in_the_report(exported, monkeypatch):
    def slow(*args: Any) -> Any:
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass
        return fx_to_ir.build(*args)

    before = lowered(exported).report.seconds
    monkeypatch.setattr(backend, "build", slow)
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
