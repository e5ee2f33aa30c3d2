"""Inputs of a concatenation that are stored at their place: dispatches and results."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from harness import Program, check_op, compare
from torch import nn
from torch.nn import functional as F

from executorch_webgpu.ir import serialize
from executorch_webgpu.plan import planner
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.plan import Plan
from executorch_webgpu.plan.planner import Planner

CAT = "aten.cat.default"


def plan_of(program: Program, caps: Any = AOT_CAPS) -> Plan:
    graph = serialize.read(program.delegates[0][1])
    return Planner(graph, caps).upper_bound()


def cats(program: Program) -> int:
    return [step.label for step in plan_of(program).dispatches].count(CAT)


class Fire(nn.Module):
    """SqueezeNet's module: two convolutions of one input side by side."""

    def __init__(self, squeeze: int, one: int, three: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(5, squeeze, 1)
        self.one = nn.Conv2d(squeeze, one, 1)
        self.three = nn.Conv2d(squeeze, three, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.one(x)), torch.relu(self.three(x))], 1)


class Block(nn.Module):
    """An Inception block: branches of different depth, one of them a pool."""

    def __init__(self, widths: tuple[int, int, int]) -> None:
        super().__init__()
        a, b, c = widths
        self.a = nn.Conv2d(4, a, 1)
        self.b = nn.Sequential(nn.Conv2d(4, 6, 1), nn.ReLU(), nn.Conv2d(6, b, 3, 1, 1))
        self.c = nn.Conv2d(4, c, 1)
        self.last = nn.Conv2d(a + b + c + 4, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = F.max_pool2d(x, 3, 1, 1)
        parts = [self.a(x), F.silu(self.b(x)), self.c(F.avg_pool2d(x, 3, 1, 1)), pooled]
        return self.last(torch.relu(torch.cat(parts, 1).flip(1)))


@pytest.mark.parametrize("size", [8, 7])
@pytest.mark.parametrize("one", [4, 3])
def test_convolutions_write_side_by_side(size: int, one: int) -> None:
    program = check_op(Fire(3, one, 5), torch.randn(1, 5, size, size))
    assert cats(program) == 0
    assert len(plan_of(program).dispatches) == 3


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("widths", [(4, 8, 4), (3, 5, 7)])
def test_branches_write_side_by_side(batch: int, widths: tuple[int, int, int]) -> None:
    program = check_op(Block(widths), torch.randn(batch, 4, 6, 6))
    assert cats(program) == 0


def test_a_live_batch_and_size() -> None:
    def inputs(batch: int, size: int) -> tuple[torch.Tensor]:
        return (torch.randn(batch, 5, size, size),)

    batch, size = (torch.export.Dim(name, min=2, max=9) for name in ("batch", "size"))
    others = [inputs(2, 4), inputs(5, 7), inputs(3, 8), inputs(9, 9)]
    shapes: Any = ({0: batch, 2: size, 3: size},)
    program = check_op(
        Fire(3, 4, 5), *inputs(9, 9), dynamic_shapes=shapes, others=others
    )
    assert cats(program) == 0


class Mixed(nn.Module):
    """Parts of every kind: an input, layers, a program, one value twice."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.dim = dim

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        twice = torch.softmax(y, 1)
        parts = [x, self.first(x), x * y, twice, self.second(y), twice, y]
        return torch.cat(parts, self.dim), torch.cat([parts[1].sum(0), y[0]], 0)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("width", [6, 8])
def test_parts_that_are_not_there_are_copied(dim: int, width: int) -> None:
    x, y = torch.randn(3, width, 8), torch.randn(3, width, 8)
    program = check_op(Mixed(dim), x, y)
    labels = [step.label for step in plan_of(program).dispatches]
    # All that the first one copies fits one kernel; of the second, a part is there.
    assert labels.count(CAT) == 2, labels


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32])
def test_other_types(dtype: torch.dtype) -> None:
    x = (torch.randn(3, 5, 7) * 50).to(dtype)

    def joined(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.flip(0), x.amax(1, keepdim=True) + 1, x.roll(1, 2)], 1)

    program = check_op(joined, x)
    assert cats(program) == 0


def test_a_cat_in_a_cat() -> None:
    def nested(x: torch.Tensor) -> torch.Tensor:
        inner = torch.cat([x.flip(0), x.flip(1)], 1)
        return torch.cat([inner, x.roll(1, 0), torch.cat([x, x], 1)], 1)

    program = check_op(nested, torch.randn(3, 4, 8))
    # Neither part of the first is copied, but it is, with what is not in place.
    assert cats(program) == 2


def test_a_kernel_stores_nothing_in_the_part_behind_its_own() -> None:
    """Fours that reach beyond the last of 4097 elements, after the next part."""

    def joined(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b, second = x.cumsum(0), x.roll(1, 0), x.flip(0)
        product = a * b
        return a, b, torch.cat([product, second, x.roll(2, 0)], 0)

    program = check_op(joined, torch.randn(4097), atol=1e-3)
    labels = [step.label for step in plan_of(program).dispatches]
    assert "aten.mul.Tensor" in labels
    assert labels.index("aten.flip.default") < labels.index("aten.mul.Tensor")
    assert cats(program) == 0


def test_memory_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(x: torch.Tensor) -> torch.Tensor:
        """A small part, long before the large one."""
        first = x[:1].flip(1)
        y = x
        for _ in range(3):
            y = y.cumsum(0).roll(1, 1)
        return torch.cat([first, y.repeat(64, 1).cumsum(0)], 0).sum(0)

    for program in (
        check_op(late, torch.rand(3, 64) * 0.1, rtol=1e-3),
        check_op(Block((4, 8, 4)), torch.randn(3, 4, 6, 6)),
    ):
        found = plan_of(program).scratch_bytes
        with monkeypatch.context() as patched:
            patched.setattr(planner, "placed", lambda graph, waiting: {})
            plain = plan_of(program).scratch_bytes
        assert found <= plain


def test_results_are_those_of_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 4, 6, 6)
    program = check_op(Block((3, 5, 7)), x)
    with monkeypatch.context() as patched:
        patched.setattr(planner, "placed", lambda graph, waiting: {})
        copied = list(program._load().execute([x]))
    compare(program.run(x), copied, rtol=0, atol=0)
