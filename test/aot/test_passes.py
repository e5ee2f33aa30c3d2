"""Each pass by what it leaves to be dispatched; results are compared as well."""

from __future__ import annotations

import torch
from harness import Program, check_op

from executorch_webgpu import serialize
from executorch_webgpu.device import AOT_CAPS
from executorch_webgpu.planner import Planner


def dispatches(program: Program) -> list[str]:
    graph = serialize.read(program.delegates[0][1])
    plan = Planner(graph, AOT_CAPS).upper_bound()
    return [step.label for step in plan.dispatches]


def test_a_chain_of_formulas_is_one_dispatch():
    program = check_op(
        lambda x, y: torch.where(torch.relu(x * 2 + y) > 1, x.exp() * x, -y.abs()),
        torch.randn(7, 5),
        torch.randn(7, 5),
    )
    assert dispatches(program) == ["webgpu.pointwise"]


def test_a_value_that_is_read_twice_is_computed_once():
    program = check_op(lambda x: (x.exp(), x.exp().sum(1)), torch.randn(7, 5))
    assert "aten.exp.default" in dispatches(program)


def test_what_follows_a_kernel_is_done_as_it_stores():
    linear = torch.nn.Linear(7, 5)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = linear

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.gelu(self.linear(x)) * 0.5 + y

    program = check_op(Model(), torch.randn(3, 7), torch.randn(3, 5))
    assert len(dispatches(program)) == 1


def test_a_broadcast_result_is_not_recomputed_for_every_element():
    program = check_op(lambda x, y: x.exp() + y, torch.randn(5), torch.randn(7, 5))
    assert len(dispatches(program)) == 2


def test_no_kernel_is_given_more_buffers_than_a_browser_has():
    tensors = [torch.randn(3, 5) for _ in range(12)]
    program = check_op(lambda *x: sum(a * (i + 2) for i, a in enumerate(x)), *tensors)
    graph = serialize.read(program.delegates[0][1])
    plan = Planner(graph, AOT_CAPS).upper_bound()
    assert max(len(p.access) - 1 for p in plan.pipelines) <= 8
    assert len(plan.dispatches) <= 3


def test_constants_are_folded_and_copies_dropped():
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(5.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.clone() + (self.table * 2).exp()).clone()

    program = check_op(Model(), torch.randn(3, 5))
    assert len(dispatches(program)) == 1


def test_shape_ops_cost_nothing():
    program = check_op(
        lambda x: x.permute(1, 0).unsqueeze(0).expand(4, 5, 3)[:, 1:4] + 1,
        torch.randn(3, 5),
    )
    assert len(dispatches(program)) == 1
