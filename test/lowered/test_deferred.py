"""Elementwise programs inlined into their reader: dispatches, results, limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
import torch
from harness import Program, check_op, compare, lower
from torch.nn import functional as F

from executorch_webgpu import last_error
from executorch_webgpu.ir import serialize
from executorch_webgpu.plan import planner
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.planner import Planner

Function: TypeAlias = Callable[..., Any]
CPU_CAPS = replace(AOT_CAPS, is_cpu=True)


def dispatches(program: Program, caps: Any = AOT_CAPS) -> list[str]:
    graph = serialize.read(program.delegates[0][1])
    return [step.label for step in Planner(graph, caps).upper_bound().dispatches]


def masked_mean(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return (x * m).sum(1) / m.sum(1).clamp(min=1e-9)


def joined(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.relu(x) * 2, torch.sigmoid(y)], 1)


# Function, shapes of the inputs (n is the live size), launches on a GPU and on a CPU
# adapter, where a norm's statistics are a launch, and what broadcasts or has many
# operands waits for one reading only.
CASES: dict[str, tuple[Function, list[list[Any]], int, int]] = {
    "cosine": (F.cosine_similarity, [["n", 7, 37], ["n", 7, 37]], 3, 3),
    "masked mean": (masked_mean, [["n", 13, 37], ["n", 13, 1]], 2, 2),
    "softmax": (
        lambda x, m: torch.softmax(x * 0.3 + m, -1),
        [["n", 3, 37, 40], [1, 1, 37, 40]],
        1,
        2,
    ),
    "softmax of few": (
        lambda x, m: torch.softmax(x * 0.3 + m, -1),
        [["n", 2, 5, 7], ["n", 1, 1, 7]],
        1,
        1,
    ),
    "softmax of four": (
        lambda x, y, z, w: torch.softmax(x * y + z * w, -1),
        [["n", 8, 37]] * 4,
        1,
        2,
    ),
    "mean of squares": (lambda x: (x * x).mean(-1), [["n", 37]], 1, 1),
    "mean of all": (lambda x, y: F.mse_loss(x, y), [["n", 3], ["n", 3]], 1, 1),
    "log softmax": (lambda x: F.log_softmax(x / 0.7, -1), [["n", 113]], 1, 1),
    "layer norm": (
        lambda x, y: F.layer_norm(x + y, (37,)),
        [["n", 3, 37], ["n", 3, 37]],
        1,
        2,
    ),
    "group norm": (
        lambda x, y: F.group_norm(torch.relu(x) - y, 3),
        [["n", 6, 5, 7], ["n", 6, 5, 7]],
        1,
        2,
    ),
    "cat": (joined, [["n", 7, 3], ["n", 5, 3]], 1, 1),
    "cat in fours": (joined, [["n", 8, 64], ["n", 4, 64]], 1, 1),
    "cat in fours, broadcast": (
        lambda x, y, z: torch.cat([x * y, y - x, x + z], 1),
        [["n", 4, 6], [4, 6], ["n", 1, 6]],
        1,
        1,
    ),
    "variance": (lambda x, y: (x + y).var(-1), [["n", 37], ["n", 37]], 1, 1),
    "distance": (lambda x, y: (x - y).norm(dim=-1), [["n", 37], ["n", 37]], 1, 1),
    "behind a view": (
        lambda x, y: (x + y).permute(0, 2, 1).reshape(x.shape[0], 111).amax(1),
        [["n", 3, 37], [3, 37]],
        2,
        2,
    ),
    "behind a permutation": (
        lambda x, y: (x + y).permute(2, 0, 1).sum(1),
        [["n", 3, 37], [3, 37]],
        1,
        1,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_program_with_one_reader_is_no_launch(name: str) -> None:
    function, shapes, gpu, cpu = CASES[name]

    def inputs(n: int) -> list[torch.Tensor]:
        sizes = [[n if s == "n" else s for s in shape] for shape in shapes]
        return [torch.randn(size) for size in sizes]

    size = torch.export.Dim("n", min=2, max=9)
    dynamic = [{0: size} if shape[0] == "n" else {} for shape in shapes]
    others = [inputs(n) for n in (2, 5, 9)]
    program = check_op(function, *inputs(9), dynamic_shapes=dynamic, others=others)
    assert len(dispatches(program)) == gpu, dispatches(program)
    assert len(dispatches(program, CPU_CAPS)) == cpu, dispatches(program, CPU_CAPS)


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda x, y: torch.softmax(x.exp() + y, -1), "webgpu.pointwise"),
        (lambda x, y: F.layer_norm(x / y, (8,)), "aten.div.Tensor"),
        (lambda x, y: F.layer_norm(x, (8,), (y * 2).sum(0)[:8]), "aten.sum"),
        (lambda x, y: (x * y).cumsum(1), "aten.mul.Tensor"),
        (lambda x, y: torch.cat([x + y, x + y], 1), "aten.add.Tensor"),
        (lambda x, y: (lambda z: (z, z.sum(1)))(x + y), "aten.add.Tensor"),
    ],
    ids=["dear", "quotient", "weight", "no reader", "twice", "output"],
)
def test_other_programs_are_launches(function: Function, kept: str) -> None:
    program = check_op(function, torch.randn(5, 8), torch.rand(5, 8) + 1)
    labels = dispatches(program)
    assert len(labels) == 2, labels
    assert labels[0].startswith(kept), labels


def test_a_program_does_not_keep_two_results_for_one() -> None:
    def late(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = x.cumsum(0), x.cumsum(1)
        product = a * b
        return a, b, torch.cat([product, x.flip(0)], 1)

    program = check_op(late, torch.rand(5, 8))
    assert "aten.mul.Tensor" in dispatches(program)


def both_ways(
    monkeypatch: pytest.MonkeyPatch, function: Function, inputs: Sequence[torch.Tensor]
) -> None:
    """Results to the last bit as if nothing waited for its reader."""
    program = check_op(function, *inputs)
    found = program.run(*inputs)
    with monkeypatch.context() as patched:
        patched.setattr(planner, "deferred", lambda graph: {})
        plain = program._load()
        stored = list(plain.execute(list(inputs)))
        before = len(dispatches(program))
    assert len(dispatches(program)) < before
    compare(found, stored, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_rounded_as_if_they_were_stored(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    x, y = (torch.randn(9, 37) * 40, torch.randn(9, 37) * 300)
    both_ways(
        monkeypatch,
        lambda x, y: ((x * y).amax(1), torch.cat([x * y, x / 3], 1).float()),
        (x.to(dtype), y.to(dtype)),
    )
    both_ways(monkeypatch, lambda x, y: (x * y).to(dtype).amax(1), (x * 7, y * 7))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.bool])
def test_integers_wrap_as_if_they_were_stored(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    x, y = (torch.randint(-30000, 30000, (9, 40)).to(dtype) for _ in range(2))
    both_ways(
        monkeypatch,
        lambda x, y: ((x * y).sum(1), torch.cat([x * 3, y + x], 1).amax(0)),
        (x, y),
    )
    both_ways(monkeypatch, lambda x, y: (x == y).sum(1), (x, y))


def test_an_overflow_is_reported_by_the_op_that_has_it() -> None:
    x = torch.full((3, 5), 2**20)
    program = check_op(lambda x: (x * x).sum(1), x // 2**18)
    with pytest.raises(RuntimeError):
        program.run(x)
    assert "aten.mul.Tensor" in (last_error() or "")


def test_no_reader_binds_more_buffers_than_a_browser_has() -> None:
    tensors = [torch.randn(3, 8) for _ in range(6)]
    weight = torch.rand(2, 8)

    def normed(w: torch.Tensor, *x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(sum(a * 0.5 for a in x), (8,), w[0], w[1]) + x[0]

    program = check_op(normed, weight, *tensors)
    assert len(dispatches(program)) >= 2
    tensors = [torch.randn(3, 8) for _ in range(12)]
    program = check_op(
        lambda *x: torch.cat([a - b for a, b in zip(x[::2], x[1::2])], 1), *tensors
    )
    # Three differences of two in each of two launches.
    assert dispatches(program) == ["aten.cat.default"] * 2


class Cache(torch.nn.Module):
    """Reads its state by a program whose reader comes after the state changed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.zeros(1, 2, 16, 8))

    def forward(self, k: torch.Tensor, start: torch.Tensor) -> Any:
        at = start.item()
        torch._check(at >= 0)
        torch._check(at < 16)
        before = self.k * 3
        self.k.index_copy_(2, torch.arange(k.shape[2]) + at, k)
        return before.sum(3), self.k * 1.0


def test_a_state_is_read_before_it_changes() -> None:
    model = Cache()
    example = (torch.randn(1, 2, 3, 8), torch.tensor([0]))
    program = lower(model, example)
    ops = [call.op for call in serialize.read(program.delegates[0][1]).calls]
    first, put, last = (
        next(i for i, op in enumerate(ops) if op.startswith(name))
        for name in ("aten.mul", "webgpu.cache_put", "aten.sum")
    )
    assert first < put < last, ops
    for position in (0, 2, 4, 1):
        inputs = (torch.randn(1, 2, 3, 8), torch.tensor([position]))
        expected = [t.clone() for t in model(*inputs)]
        compare(program.run(*inputs), expected)
