"""Bodies of cond, map and scan run on the GPU, and are counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from functorch.experimental.control_flow import map as map_over
from harness import Program, compare
from torch._higher_order_ops.scan import scan
from torch.utils import _pytree as pytree

from executorch_webgpu import WebGPUPartitioner

CONTROL = "control flow is the CPU's; ops inside are counted by themselves"


class Branches(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(8, 16)
        self.last = torch.nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.cond(
            x.sum() > 0,
            lambda x: torch.relu(self.first(x)),
            lambda x: self.second(x).sigmoid() * 2,
            (x,),
        )
        return self.last(y)


class Mapped(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # What no edge program may contain is rewritten in a body too.
        return map_over(lambda row: torch.var_mean(self.inner(row), 1)[0], x)


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, state: torch.Tensor, xs: torch.Tensor) -> Any:
        def step(state: torch.Tensor, x: torch.Tensor) -> Any:
            new = torch.tanh(self.inner(state) + x)
            return new, new * 2

        return scan(step, state, xs)


class Nested(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def inner(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x[0, 0] > 1, torch.exp, torch.sin, (x,)) * 3

        return torch.cond(x.sum() > 0, inner, lambda x: x - 1, (x,))


def run(
    model: torch.nn.Module,
    cases: Sequence[tuple[torch.Tensor, ...]],
    partitioner: WebGPUPartitioner | None = None,
) -> Program:
    """Lowers a model, which strict export captures, and compares every case."""
    partitioner = partitioner or WebGPUPartitioner()
    with torch.no_grad():
        exported = torch.export.export(model.eval(), cases[0], strict=True)
        edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
        program = Program(edge, partitioner)
        for case in cases:
            compare(program(*case), pytree.tree_leaves(model(*case)))
    return program


def fallbacks(program: Program) -> list[tuple[str, str, str]]:
    return [(f.node, f.op, f.reason) for f in program.report.fallbacks]


def test_branches_of_a_condition() -> None:
    x = torch.rand(3, 8)
    program = run(Branches(), [(x,), (-x,)])
    assert fallbacks(program) == [("cond", "cond", CONTROL)]
    assert program.report.delegated["aten.linear.default"] == 3
    assert program.report.delegated["aten.sigmoid.default"] == 1
    assert len(program.delegates) == 4


def test_the_body_of_a_map() -> None:
    program = run(Mapped(), [(torch.randn(5, 3, 8),)])
    assert [op for _, op, _ in fallbacks(program)] == ["map_impl"]
    assert program.report.delegated["aten.linear.default"] == 1
    # 5 runs of 3 x 8 x 16, and what the variance takes.
    assert program.report.gpu_multiply_adds >= 5 * 3 * 8 * 16
    assert program.report.cpu_multiply_adds == 0


def test_the_step_of_a_scan() -> None:
    program = run(Recurrent(), [(torch.randn(3, 8), torch.randn(6, 3, 8))])
    assert [op for _, op, _ in fallbacks(program)] == ["scan"]
    assert program.report.delegated["aten.tanh.default"] == 1
    assert program.report.gpu_multiply_adds >= 6 * 3 * 8 * 8


def test_a_condition_in_a_branch() -> None:
    low, high = torch.full((2, 3), 0.5), torch.full((2, 3), 1.5)
    program = run(Nested(), [(low,), (high,), (-low,)])
    assert [op for _, op, _ in fallbacks(program)] == ["cond", "cond"]
    assert {"aten.exp.default", "aten.sin.default"} <= program.report.delegated.keys()


def test_what_stays_on_the_cpu_in_a_branch_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused = WebGPUPartitioner(operator_blocklist=["aten.sigmoid.default"])
    program = run(Branches(), [(torch.rand(3, 8),), (-torch.rand(3, 8),)], refused)
    names = {op: node for node, op, _ in fallbacks(program)}
    assert names["aten.sigmoid.default"].startswith("cond.")
    assert "aten.sigmoid.default" in caplog.text
    assert program.report.cpu_multiply_adds == 3 * 16
