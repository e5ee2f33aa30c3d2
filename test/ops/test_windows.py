"""Tensors larger than a binding, in windows; the adapter's limit is set small."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import dawn
import numpy as np
import pytest
import torch
from executorch.runtime import Runtime
from forms import adapter_with
from harness import Function, Program, check_op, compare, lower
from test_dawn import contents, differences, play_wgpu
from torch.export import Dim
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from executorch_webgpu import ir, last_error
from executorch_webgpu.export import passes, support
from executorch_webgpu.export.constants import Constants
from executorch_webgpu.export.debug_handles import DebugHandles
from executorch_webgpu.export.passes.fusion import merge_gated, merge_linears
from executorch_webgpu.ir import serialize
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.plan import Plan, Role
from executorch_webgpu.plan.planner import Planner

LIMIT = 16 << 10  # bytes of a binding
LIMITS = {"max_binding": LIMIT, "max_buffer": 16 * LIMIT, "offset_align": 256}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is exported and what is loaded has the small limit."""
    caps: Any = replace(AOT_CAPS, **LIMITS)
    for module in (support, merge_linears, merge_gated):
        monkeypatch.setattr(module, "AOT_CAPS", caps)
    with adapter_with(**LIMITS):
        yield


def plan_of(program: Program, **changes: Any) -> Plan:
    ((_, blob),) = program.delegates
    caps: Any = replace(AOT_CAPS, **{**LIMITS, **changes})
    return Planner(serialize.read(blob), caps).upper_bound()


def in_windows(plan: Plan) -> list[str]:
    return [step.label for step in plan.dispatches if step.ranges]


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 1000, shape).to(dtype)


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "one": (torch.relu, (rand(4097),)),
    "fused": (lambda x: (x * 2 + 1).tanh(), (rand(30011),)),
    "even": (lambda x, y: x - y, (rand(3, 8192), rand(3, 8192))),
    "row": (lambda x, y: x * y, (rand(97, 301), rand(301))),
    "column": (lambda x, y: x * y + y, (rand(97, 301), rand(97, 1))),
    "outer": (lambda x, y: x + y, (rand(113, 1), rand(1, 97))),
    "turned": (lambda x, y: x.t() + y, (rand(113, 97), rand(97, 113))),
    "two turned": (
        lambda x, y, z: x.permute(2, 1, 0) * y.permute(1, 0, 2) + z,
        (rand(31, 17, 23), rand(17, 23, 31), rand(23, 17, 31)),
    ),
    "small of large": (lambda x: x[5:9, ::3] * 2, (rand(113, 97),)),
    "half": (lambda x: x * 3, (rand(20011, dtype=torch.half),)),
    "to half": (lambda x: x.half(), (rand(20011),)),
    "to float": (lambda x: x.float() + 1, (rand(7001, dtype=torch.half),)),
    "bool": (lambda x: x > 0, (rand(9973),)),
    "int64": (lambda x: x + x * 7, (rand(9973, dtype=torch.int64),)),
    "fill": (lambda x: torch.full((9973,), 3.5) * x, (rand(1),)),
    "like": (torch.ones_like, (rand(9973),)),
    "where": (
        lambda m, x: torch.where(m, x, -1.0),
        (rand(9973, dtype=torch.bool), rand(9973)),
    ),
    "permute": (lambda x: x.permute(2, 0, 1), (rand(13, 37, 41),)),
    "permute 4": (lambda x: x.permute(3, 2, 1, 0), (rand(7, 11, 13, 17),)),
    "expand": (lambda x: x.expand(41, 113, 3), (rand(113, 1),)),
    "narrow": (lambda x: x[:, 1:], (rand(113, 97),)),
    "windows": (lambda x: x.unfold(0, 7, 3), (rand(9973),)),
    "flip": (lambda x: x.flip(0, 1), (rand(113, 97),)),
    "flip and more": (lambda x: x.flip(0).relu() + 1, (rand(113, 97),)),
    "repeat": (lambda x: x.repeat(3, 5), (rand(41, 37),)),
    "cat 0": (lambda x, y: torch.cat([x, y, x]), (rand(3001), rand(4099))),
    "cat 1": (
        lambda x, y: torch.cat([x, y], 1),
        (rand(31, 41, 3), rand(31, 97, 3)),
    ),
    "cat of results": (
        lambda x, y: torch.cat([x + 1, y.exp(), x.flip(1)], 1),
        (rand(3, 1001), rand(3, 1999)),
    ),
    "stack": (lambda x, y: torch.stack([x, y], -1), (rand(53, 97), rand(53, 97))),
}


def run_with(program: Program, *inputs: torch.Tensor, **changes: Any) -> list[Any]:
    """The results on an adapter that differs in more than the limit."""
    with adapter_with(**changes):
        loaded = Runtime.get().load_program(program.buffer)
        method = loaded.load_method("forward")
        assert method is not None, last_error()
        return list(method.execute(pytree.tree_leaves(inputs)))


@pytest.mark.parametrize("name", CASES)
def test_pieces_are_eager(name: str) -> None:
    function, inputs = CASES[name]
    program = check_op(function, *inputs)
    assert in_windows(plan_of(program))
    with torch.no_grad():
        expected = pytree.tree_leaves(function(*inputs))
    changes: dict[str, Any]
    for changes in ({"is_cpu": False}, {"f16": False}):
        compare(run_with(program, *inputs, **changes), expected)


@pytest.mark.parametrize("name", ["fused", "two turned", "cat 1", "to half"])
def test_other_players_agree(name: str) -> None:
    """The reference player, whose results Dawn must have too."""
    function, inputs = CASES[name]
    program = lower(Function(function), inputs)
    plan = plan_of(program)
    ((_, blob),) = program.delegates
    arrays, constants = contents(serialize.read(blob), plan)
    results, in_memory = play_wgpu(plan, arrays, constants)
    by_dawn = dawn.on("").play(plan, [x.tobytes() for x in arrays], in_memory)
    given = [
        torch.from_numpy(array).reshape(x.shape) for array, x in zip(arrays, inputs)
    ]
    wanted = pytree.tree_leaves(function(*given))
    for port, result, other, want in zip(
        plan.outputs, results, by_dawn, wanted, strict=True
    ):
        assert not differences(other, result, port)
        array = np.frombuffer(result, port.storage.numpy)[: port.numel]
        compare([torch.from_numpy(array.copy()).reshape(want.shape)], [want])


class Head(torch.nn.Module):
    """Kernels that read parts of a large tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        large = torch.cat([x, y]) * 2
        few = large[7:11]
        return (
            large,
            few.sum(1),
            F.softmax(large[3:9].t(), 0),
            self.linear(few) + large[1:5],
            torch.cat([few, few.exp()]),
            (self.linear(large[20:24]).sum(0) + 1).cumsum(0),
        )


def test_small_parts_of_large_tensors() -> None:
    inputs = rand(83, 64), rand(53, 64)
    model = Head()
    program = check_op(model, *inputs)
    plan = plan_of(program)
    assert max(b.size for b in plan.buffers) > LIMIT
    with torch.no_grad():
        expected = list(model(*inputs))
    compare(run_with(program, *inputs, is_cpu=False), expected)


def test_small_results_in_large_scratch() -> None:
    """A buffer is shared with what could be bound whole, which binds a part of it."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        turned = torch.cat([x, x + 1], 1).flip(0)
        narrow = turned[:, :9].sum(1)
        return (y.softmax(0) + narrow[:7].cumsum(0)).softmax(0)

    program = check_op(function, rand(37, 97), rand(7))
    plan = plan_of(program)
    shared = {
        index
        for step in plan.dispatches
        for index, bound in zip(step.buffers, step.ranges)
        if bound and bound[1] < LIMIT and plan.buffers[index].role is Role.SCRATCH
    }
    assert shared


def test_a_large_state() -> None:
    class Sum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.ones(97, 101))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)
            return self.total * 2

    x = rand(97, 101)
    program = lower(Sum(), (x,))
    assert program.report.complete, program.report
    for times in (1, 2):
        compare(program.run(x), [(1 + times * x) * 2])


def test_a_large_constant_operand() -> None:
    table = rand(113, 97)
    check_op(lambda x: x + table, rand(113, 97))
    check_op(lambda x: x * table[:, :1], rand(113, 97))
    # The view of a constant is read by a kernel that binds no part of a buffer.
    check_op(lambda x: x.tril() + table[3:9, ::3].tril(), rand(6, 33))


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (lambda x: (x * 2).sum(1) + 1, "aten.sum.dim_IntList"),
        (lambda x: F.softmax(x * 2, 1), "aten._softmax.default"),
        (lambda x: x.cumsum(0) * 2, "aten.cumsum.default"),
    ],
)
def test_what_is_not_cut_stays_on_the_cpu(
    function: Callable[[torch.Tensor], torch.Tensor], op: str
) -> None:
    program = check_op(function, rand(113, 97), delegated=False)
    reason = f"a tensor must fit a binding of {LIMIT} bytes, got {113 * 97 * 4 + 12}"
    assert [(f.op, f.reason) for f in program.report.fallbacks] == [(op, reason)]


def test_no_buffer_is_above_its_limit() -> None:
    size = LIMITS["max_buffer"] + 16
    program = check_op(lambda x: x.abs(), rand(size // 4), delegated=False)
    reason = f"a tensor must fit a buffer of {LIMITS['max_buffer']} bytes, got {size}"
    assert reason in {f.reason for f in program.report.fallbacks}
    assert not program.delegates


def test_halves_must_fit_where_they_are_floats() -> None:
    x = rand(5000, dtype=torch.half)
    program = check_op(lambda x: x.amax(0), x, delegated=False)
    (fallback,) = program.report.fallbacks
    assert fallback.reason.endswith("got 20000 on a GPU without f16")


def test_what_is_fused_too_large_is_not_fused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As if a pass had put an op in place of others that needs more than they do."""

    def fused(graph: ir.Graph, constants: Constants, handles: DebugHandles) -> ir.Graph:
        (x,), (y,) = graph.inputs, graph.outputs
        graph.calls = [ir.Call("aten.cumsum.default", [ir.Ref(x), 0, None], [y])]
        return graph

    monkeypatch.setattr(passes, "apply", fused)
    check_op(lambda x: x.flip(0) * 2, rand(113, 97))
    assert "nothing is fused: aten.cumsum.default: a tensor must fit" in caplog.text


def test_layers_whose_results_are_too_large_together_stay_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Three(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 16) for _ in range(3))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(layer(x).t().softmax(0) for layer in self.layers)

    check_op(Three(), rand(100, 8))
    assert "nothing is fused" not in caplog.text


def test_live_sizes_below_and_above_the_limit() -> None:
    rows = Dim("rows", min=2, max=400)

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = x * 2 + y
        return z, z.t(), torch.cat([x, z]), z[:1].sum(1)

    program = check_op(
        function,
        rand(400, 67),
        rand(67),
        dynamic_shapes=[{0: rows}, None],
        others=[[rand(n, 67), rand(67)] for n in (2, 61, 62, 1, 399)],
    )
    assert in_windows(plan_of(program))
