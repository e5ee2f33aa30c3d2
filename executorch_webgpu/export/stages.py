"""What an export is doing, as a line on a terminal, and what our part of it costs.

ExecuTorch tells nobody where it is, so the thread that draws the line looks at the
stack of the one that exports. Nothing of ExecuTorch is changed for that, and nothing is
done where stderr is no terminal.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import ParamSpec, TextIO, TypeVar

from ..progress import Progress

# Ours, by which reports name CPU time, too.
REWRITE = "rewrite for WebGPU"
PARTITION = "partition"
PREPROCESS = "preprocess for WebGPU"

_PASSES = "ExecuTorch's passes"
_PROGRAM = "executorch.exir.program._program"
# Stages by a module and a function that are on the stack during them.
_STAGES: dict[tuple[str, str], str] = {
    ("torchao.quantization.quant_api", "quantize_"): "quantize",
    ("torchao.quantization.pt2e.quantize_pt2e", "prepare_pt2e"): "quantize",
    ("torchao.quantization.pt2e.quantize_pt2e", "convert_pt2e"): "quantize",
    ("torch.export", "export"): "torch.export",
    ("torch.export.exported_program", "run_decompositions"): "decompose",
    ("executorch_webgpu.export.partitioner", "transform_for_pre_decomposition"): (
        REWRITE
    ),
    ("executorch_webgpu.export.partitioner", "ops_to_not_decompose"): PARTITION,
    ("executorch_webgpu.export.partitioner", "partition"): PARTITION,
    ("executorch_webgpu.export.backend", "preprocess"): PREPROCESS,
    (_PROGRAM, "to_edge"): _PASSES,
    (_PROGRAM, "to_edge_transform_and_lower"): _PASSES,
    (_PROGRAM, "to_backend"): _PASSES,
    (_PROGRAM, "to_executorch"): _PASSES,
    ("executorch.exir.emit._emit_program", "emit_program"): "emit",
    ("executorch.exir._serialize._serialize", "serialize_for_executorch"): "emit",
}

_P = ParamSpec("_P")
_R = TypeVar("_R")


# CPU seconds in functions of ours that ExecuTorch is spared.
_spared = 0.0


def spare(seconds: float) -> None:
    """What a function of ours has spent on a step of ExecuTorch's own, which is not
    taken again, is not counted as ours."""
    global _spared
    _spared += seconds


def timed(stage: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """For a function of ours that ExecuTorch calls: adds its CPU seconds to the report
    that one of its arguments has."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            began = time.process_time() - _spared
            try:
                return function(*args, **kwargs)
            finally:
                took = time.process_time() - _spared - began
                for arg in (*args, *kwargs.values()):
                    report = getattr(arg, "report", None)
                    if report is not None:
                        report.seconds[stage] += took

        return call

    return decorate


def current(frame: FrameType | None) -> str:
    """The stage of a stack, given its innermost frame; empty if none is known."""
    for each in _stack(frame):
        found = _STAGES.get((_module(each), each.f_code.co_name))
        if found is not None:
            return found
    return ""


class ExportProgress(Progress):
    """The stage is that of the thread that made this; where the stack has none, it is
    the one that was said last."""

    def __init__(
        self,
        title: str,
        stream: TextIO | None = None,
        within: CodeType | None = None,
    ) -> None:
        super().__init__(title, stream=stream)
        self._exporting = threading.get_ident()
        # The line ends when this code is no longer on the stack.
        self._within = within

    def line(self) -> str:
        frame = sys._current_frames().get(self._exporting)
        stack = list(_stack(frame))
        if self._within and all(each.f_code is not self._within for each in stack):
            self._ended.set()
        found = current(frame)
        if found:
            self.stage(found)
        return super().line()


def show_progress() -> None:
    """Draws a line until the outermost function of ExecuTorch that is calling us is
    done; not where stderr is no terminal or has a line already."""
    if not sys.stderr.isatty() or Progress.drawn:
        return
    stack = list(_stack(sys._getframe()))
    theirs = [each for each in stack if _module(each).startswith("executorch.")]
    if theirs:
        ExportProgress("export", within=theirs[-1].f_code).__enter__()


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """From the innermost frame outwards."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
