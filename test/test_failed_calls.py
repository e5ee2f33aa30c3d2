"""A call that fails changes no state, wherever in the program it fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from executorch.runtime import Method, Runtime
from harness import lower
from torch import nn

from executorch_webgpu import _shim, last_error, options
from executorch_webgpu.cli import delegates
from executorch_webgpu.ir import serialize
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.planner import Planner

ROOM = 8  # rows of a cache
Inputs = tuple[torch.Tensor, ...]


class Memory(nn.Module):
    """Two caches of rows, a counter, and a function that reads and writes them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(1, ROOM, 4))
        self.register_buffer("b", torch.zeros(1, ROOM, 4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        generator = torch.Generator().manual_seed(0)
        self.table = nn.Parameter(torch.randn(5, 4, generator=generator))
        self.function = function

    def forward(self, ids: torch.Tensor, at: torch.Tensor, pick: torch.Tensor) -> Any:
        return self.function(self, ids, at, pick)


def checked_first(m: Any, ids: torch.Tensor, at: torch.Tensor, pick: torch.Tensor):
    """All indices are inputs: they can be checked before anything is written."""
    rows = torch.embedding(m.table, ids)
    m.a[:, at] = rows
    rows = (m.a.sum(1, keepdim=True) + rows).tanh()
    m.b[:, at] = rows + torch.embedding(m.table, pick)
    m.count += 1
    return m.b.sum(1), m.count


def counted(m: Any, ids: torch.Tensor, at: torch.Tensor, pick: torch.Tensor):
    """The positions in the second cache come from a counter that may overflow."""
    m.a[:, at] = torch.embedding(m.table, ids)
    there = m.count + torch.arange(2)
    m.b[:, there] = m.a[:, :2].tanh()
    m.count += pick[0]
    return m.a + m.b, m.count


def checked_late(m: Any, ids: torch.Tensor, at: torch.Tensor, pick: torch.Tensor):
    """The last index is computed from what was written."""
    m.a[:, at] = torch.embedding(m.table, ids)
    m.b[:, at] = m.a[:, :2].tanh()
    m.count += 1
    found = (m.a + m.b).abs().sum(2).argmax(1)
    return torch.embedding(m.table, found + pick), m.a + m.b, m.count


def made(ids: list[int], at: list[int], pick: int) -> Inputs:
    return torch.tensor([ids]), torch.tensor(at), torch.tensor([pick])


GOOD = [made([1, 2], [0, 1], 0), made([3, 0], [2, 1], 0), made([4, 4], [7, 3], 0)]
FAILURES = {
    "early": (made([1, 5], [4, 5], 0), "index must be in [0, 5), got 5"),
    "in a cache": (made([1, 2], [6, 8], 0), "index must be in [0, 8), got 8"),
    "before the first row": (made([1, 2], [-1, 6], 0), "index must be in [0, 8)"),
    "late": (made([1, 2], [5, 6], 9), "must be in [0, "),
    "on the host": (made([1, 2**40], [5, 6], 0), "int64 values must fit int32"),
}
# Of `counted`: the counter would pass the largest int32.
FULL = (made([1, 2], [5, 6], 2**31 - 1), "an int64 must fit int32 on the GPU")
FUNCTIONS = {f.__name__: f for f in (checked_first, counted, checked_late)}


@cache
def program(name: str) -> bytes:
    lowered = lower(Memory(FUNCTIONS[name]), GOOD[0])
    assert lowered.report.complete, str(lowered.report)
    assert len(lowered.delegates) == 1
    return lowered.buffer


def load(name: str) -> Method:
    method = Runtime.get().load_program(program(name)).load_method("forward")
    assert method is not None, last_error()
    return method


@pytest.fixture(autouse=True, params=["native", "wgpu"])
def _player(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_overrides", {})
    _shim.set_option("executor", request.param)


def refused(method: Method, failure: tuple[Inputs, str]) -> None:
    inputs, text = failure
    with pytest.raises(RuntimeError):
        method.execute(list(inputs))
    assert text in (last_error() or "")


def check_untouched(name: str, failures: list[tuple[Inputs, str]]) -> None:
    """Failing between good calls changes not a bit of what these give."""
    method, twin = load(name), load(name)
    for inputs in GOOD:
        expected = twin.execute(list(inputs))
        for failure in failures:
            refused(method, failure)
        for result, wanted in zip(method.execute(list(inputs)), expected):
            assert torch.equal(result, wanted)


@pytest.mark.parametrize("name", ["checked_first", "checked_late"])
def test_a_failed_call_changes_no_state(name: str) -> None:
    check_untouched(name, list(FAILURES.values()))


def test_an_overflow_of_a_counter_changes_no_state() -> None:
    method = load("counted")
    first = list(GOOD[0][:2])
    method.execute([*first, torch.tensor([1])])
    expected = method.execute([*first, torch.tensor([0])])
    refused(method, FULL)
    refused(method, FAILURES["in a cache"])
    for result, wanted in zip(method.execute([*first, torch.tensor([0])]), expected):
        assert torch.equal(result, wanted)
    method.execute([*first, torch.tensor([6])])
    refused(method, (GOOD[1], "index must be in [0, 8), got 8"))


def test_only_what_reports_late_is_undone() -> None:
    """Where all can be checked before the first write, no row is saved."""
    for name, undone in (("checked_first", 0), ("counted", 0), ("checked_late", 2)):
        ((_, blob),) = delegates(program(name))
        plan = Planner(serialize.read(blob), AOT_CAPS).upper_bound()
        labels = [plan.pipelines[step.pipeline].label for step in plan.dispatches]
        assert labels.count("cache_take") == undone
        assert labels.count("cache_put") == 2 + undone
