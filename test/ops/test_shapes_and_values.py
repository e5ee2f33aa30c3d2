"""Reductions, products and movement on shapes and values that hypothesis draws.

All ops of a family are one program with dynamic sizes, exported once for each type;
a draw chooses the sizes and fills the inputs, with infinities, NaN, signed zeros,
subnormals and large numbers among them. Each op is judged by its limit of
accuracy.py. ET_WEBGPU_DRAWS is the number of draws, each an example for every op.
"""

from __future__ import annotations

import functools
import math
import os
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from accuracy import EQUAL, MOVED, SUM, Limit, Op, close_sum, of
from harness import Program, lower
from hypothesis import HealthCheck, Phase, given, settings
from op_coverage import SHAPED, same_code
from torch.nn import functional as F

# Few enough for every size to be planned once, all kinds of remainders of 4.
SIZES = ((1, 4, 7), (1, 3, 16, 19))
ROWS, COLUMNS = 7, 19
DRAWS = int(os.environ.get("ET_WEBGPU_DRAWS", "50"))

# What chooses among the elements, or counts them: equal to eager.
CHOOSING: dict[str, Op] = {
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(0),
    "max": lambda x: x.max(),
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(0),
    "max.dim": lambda x: x.max(1).values,
    "min.dim": lambda x: x.min(0).indices,
    "sort": lambda x: x.sort(dim=1, stable=True).values,
    "argsort": lambda x: x.sort(dim=1, stable=True, descending=True).indices,
    "topk": lambda x: x.topk(1, 1).values,
    "median": lambda x: torch.median(x, 1).values,
    "any": lambda x: x.any(1),
    "all": lambda x: x.all(0),
    "count_nonzero": lambda x: (x != 0).sum(),
}
SUMS: dict[str, Op] = {
    "sum": lambda x: x.sum(1),
    "sum0": lambda x: x.sum(0),
    "mean": lambda x: x.mean((0, 1)),
    "cumsum": lambda x: x.cumsum(1),
    "norm1": lambda x: x.norm(1, 1),
    "average": lambda x: F.avg_pool1d(x[None], 1)[0] + 0,
}
PRODUCTS: dict[str, Op] = {
    "mm": lambda a, b: a @ b.T,
    "linear": lambda a, b: F.linear(a, b),
    "bmm": lambda a, b: torch.bmm(a[None], b.T[None]),
    "addmm": lambda a, b: torch.addmm(a[:, :1], a, b.T),
    "mv": lambda a, b: a @ b[0],
    "conv1d": lambda a, b: F.conv1d(a.T[None], b[:, :, None]),
}
MOVEMENT: dict[str, Op] = {
    "transpose": lambda x: x.T.contiguous(),
    "cat": lambda x: torch.cat([x, x.flip(1), x[:1]]),
    "stack": lambda x: torch.stack([x, x], 1),
    "slice": lambda x: torch.cat([x, x], 1)[:, 1::2].clone(),
    "roll": lambda x: x.roll(1, 1),
    "repeat": lambda x: x.repeat(2, 1),
    "expand": lambda x: x[:, None].expand(-1, 3, -1).contiguous(),
    "pad": lambda x: F.pad(x, (1, 2)),
    "replicate": lambda x: F.pad(x[None], (2, 1), mode="replicate"),
    "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(1),
    "select": lambda x: x[-1].clone(),
    "index": lambda x: x[torch.zeros(2, dtype=torch.int64)],
    "gather": lambda x: x.gather(0, torch.zeros_like(x, dtype=torch.int64)),
    "embedding": lambda x: F.embedding(torch.zeros(3, dtype=torch.int64), x),
    "scatter": lambda x: x.scatter(
        1, torch.zeros_like(x[:, :1], dtype=torch.int64), x[:, -1:]
    ),
    "index_put": lambda x: x.index_put((torch.tensor([0]),), x[-1:]),
    "masked_fill": lambda x: x.masked_fill(x > 1, 2.0),
    "flatten": lambda x: x.flatten(),
    "nearest": lambda x: F.interpolate(x[None], scale_factor=2)[0],
    "max_pool": lambda x: F.max_pool2d(x[None], (1, 1)),
}
FAMILIES: dict[str, tuple[Limit, dict[str, Op]]] = {
    "choosing": (EQUAL, CHOOSING),
    "sums": (SUM, SUMS),
    "products": (SUM, PRODUCTS),
    "movement": (MOVED, MOVEMENT),
}


@functools.cache
def program(family: str, dtype: torch.dtype) -> Program:
    class All(torch.nn.Module):
        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(op(*inputs) for op in FAMILIES[family][1].values())

    rows = torch.export.Dim("rows", min=1, max=ROWS)
    columns = torch.export.Dim("columns", min=1, max=COLUMNS)
    inputs, shapes = [torch.ones(ROWS, COLUMNS)], [{0: rows, 1: columns}]
    if family == "products":
        others = torch.export.Dim("others", min=1, max=ROWS)
        inputs.append(torch.ones(ROWS - 1, COLUMNS))
        shapes.append({0: others, 1: columns})
    lowered = lower(All(), [x.to(dtype) for x in inputs], (tuple(shapes),))
    assert lowered.report.complete, str(lowered.report)
    drawn = frozenset[str]().union(*lowered.behind)
    for name in SHAPED[family].split():
        assert same_code(f"aten.{name}") & drawn, f"aten.{name} must be drawn"
        assert of(f"aten.{name}") is FAMILIES[family][0], f"aten.{name}"
    return lowered


def numbers(dtype: torch.dtype, subnormal: bool) -> st.SearchStrategy[float]:
    width = 32 if dtype is torch.float32 else 16
    return st.one_of(
        st.floats(width=width, allow_subnormal=subnormal),
        st.floats(-10, 10, width=width, allow_subnormal=subnormal),
        st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan]),
    )


@st.composite
def matrices(
    draw: st.DrawFn, dtype: torch.dtype, count: int, subnormal: bool
) -> list[torch.Tensor]:
    """Matrices of one width, ordinary, huge, tiny and special."""
    columns = draw(st.sampled_from(SIZES[1]))
    ordinary = draw(st.booleans())
    number = st.floats(-10, 10, width=16) if ordinary else numbers(dtype, subnormal)
    made = []
    for _ in range(count):
        rows = draw(st.sampled_from(SIZES[0]))
        size = rows * columns
        values = draw(st.lists(number, min_size=size, max_size=size))
        made.append(torch.tensor(values).reshape(rows, columns).to(dtype))
    return made


many = settings(
    max_examples=DRAWS,
    deadline=None,
    database=None,
    derandomize=True,
    # Smaller counter-examples are not worth their time: every try plans a shape.
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


def expect(
    name: str, inputs: list[torch.Tensor], good: torch.Tensor, *text: Any
) -> None:
    at = tuple((~good).nonzero()[0].tolist()) if not bool(good.all()) else None
    assert at is None, f"{name}, element {at}, of {inputs}: {[t[at] for t in text]}"


def check(family: str, inputs: list[torch.Tensor], terms: int = 0) -> None:
    limit, ops = FAMILIES[family]
    made = program(family, inputs[0].dtype)
    for results in (made.run(*inputs), *(r for _, r in made.run_twins(*inputs))):
        for (name, op), result in zip(ops.items(), results, strict=True):
            wanted = op(*inputs)
            assert result.shape == wanted.shape, name
            if limit is SUM:
                good = close_sum(op, result, tuple(inputs), terms)
            else:
                good = limit.judge(op, result, tuple(inputs))
            expect(name, inputs, good, result, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_movement(dtype: torch.dtype) -> None:
    @many
    @given(matrices(dtype, 1, subnormal=True))
    def run(inputs: list[torch.Tensor]) -> None:
        check("movement", inputs)

    run()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_choosing(dtype: torch.dtype) -> None:
    # A driver may take subnormals for zero, and then chooses among equals.
    @many
    @given(matrices(dtype, 1, subnormal=False))
    def run(inputs: list[torch.Tensor]) -> None:
        check("choosing", inputs)

    run()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_sums(dtype: torch.dtype) -> None:
    @many
    @given(matrices(dtype, 1, subnormal=True))
    def run(inputs: list[torch.Tensor]) -> None:
        check("sums", inputs)

    run()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_products(dtype: torch.dtype) -> None:
    @many
    @given(matrices(dtype, 2, subnormal=True))
    def run(inputs: list[torch.Tensor]) -> None:
        check("products", inputs, terms=inputs[0].shape[1] + 1)

    run()
