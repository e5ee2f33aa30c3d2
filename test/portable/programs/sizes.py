"""Dynamic sizes: within bounds and beyond, tied to each other, divided, given out."""

from __future__ import annotations

from typing import Any

import torch
from test_dynamic import CASES, Of
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from .case import Case, Fails, Inputs, Programs, named, of

# From the bound down and back: one, small, odd, powers of two and their neighbours.
SIZES = (29, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 28, 29)


def sized(name: str) -> Case:
    """A program of test_dynamic at many sizes."""
    build, make, dims = CASES[name]
    size = Dim("size", min=1, max=max(SIZES))
    model = build().eval()
    shapes: Any = tuple({dim: size} for dim in dims)
    return Case(
        model,
        [*map(make, SIZES), Fails(make(30), "")],
        example=make(7),
        shapes=(shapes,) if isinstance(model, Of) else shapes,
        rtol=1e-4,
        atol=1e-4,
    )


def wide_sizes() -> Case:
    """Products whose tiles depend on the size."""
    model = nn.Sequential(nn.Linear(96, 130), nn.ReLU(), nn.Linear(130, 8))
    sizes = (1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 1, 256)
    steps = [(torch.randn(n, 96),) for n in sizes]
    size = Dim("size", min=1, max=256)
    return Case(model, steps, example=steps[4], shapes=({0: size},), atol=1e-4)


def two_sizes() -> Case:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x @ y.t(), torch.cat((x, y)), x.size(0) * 2 + y.size(0), x.sum(1)

    a, b = Dim("a", min=1, max=24), Dim("b", min=1, max=40)
    pairs = ((7, 5), (24, 40), (1, 1), (2, 40), (24, 2), (13, 13), (17, 33), (24, 40))
    steps = [(torch.randn(n, 16), torch.randn(m, 16)) for n, m in pairs]
    bad = (torch.randn(25, 16), torch.randn(5, 16))
    return of(function, *steps, Fails(bad, ""), dims=[{0: a}, {0: b}], atol=1e-4)


def from_four() -> Case:
    """A range that does not begin at one."""
    size = Dim("size", min=4, max=20)
    steps = [(torch.randn(n, 8),) for n in (8, 4, 5, 19, 20, 4)]
    small = "must be in [4, 20], got "
    return of(
        lambda x: (x.softmax(0), x.topk(3, 0).values, x[3]),
        *steps,
        Fails((torch.randn(3, 8),), f"{small}3"),
        Fails((torch.randn(1, 8),), f"{small}1"),
        Fails((torch.randn(0, 8),), f"{small}0"),
        steps[0],
        dims=[{0: size}],
    )


def the_second() -> Case:
    """At one row, which export lets through, there is no second."""
    size = Dim("n", min=2, max=6)
    x = torch.randn(6, 3)
    one = Fails((x[:1],), "no plan for sizes", "k must be in [0, 1], got 2")
    return of(
        lambda x: (x.topk(2, 0).values, x[1], x[-2]),
        *((x,), (x[:2],), one, (x[3:],)),
        dims=[{0: size}],
    )


def inside_an_expression() -> Case:
    """The symbol itself is no extent: only twice it, plus one, is."""
    half = Dim("half", min=2, max=20)
    steps = [(torch.randn(2 * n + 1, 6),) for n in (5, 2, 3, 8, 20, 5)]
    return of(
        lambda x: (x.cumsum(0), x[1:].reshape(-1, 2, 6).mean(1)),
        *steps,
        Fails((torch.randn(8, 6),), "must have shape"),
        steps[1],
        dims=[{0: 2 * half + 1}],
        atol=1e-5,
    )


def tied_extents() -> Case:
    """The same size twice, and twice the size."""
    size = Dim("size", min=2, max=16)
    made = [(torch.randn(n, n), torch.randn(2 * n)) for n in (4, 2, 3, 16, 9, 4)]
    bad = (torch.randn(4, 4), torch.randn(9))
    uneven = (torch.randn(4, 5), torch.randn(8))
    return of(
        lambda x, y: (x * 2 + x.t(), y.view(2, -1) + x[0], y.size(0)),
        *made,
        Fails(bad, "must have shape"),
        Fails(uneven, "must have shape"),
        made[0],
        dims=[{0: size, 1: size}, {0: 2 * size}],
        atol=1e-4,
    )


def strided() -> Case:
    """Sizes that are divided, with and without a rest."""
    model = nn.Sequential(
        *(nn.Conv1d(2, 6, 3, stride=2), nn.GELU(), nn.Conv1d(6, 4, 2, stride=3)),
    )
    length = Dim("length", min=12, max=65)
    steps = [(torch.randn(1, 2, n),) for n in (21, 12, 13, 16, 17, 31, 64, 65, 12)]
    return Case(model, steps, shapes=({2: length},), atol=1e-4)


def pictures() -> Case:
    """Convolutions over a plane of any height."""
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU6()),
        *(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.MaxPool2d(2), nn.Conv2d(8, 4, 1)),
        nn.Upsample(scale_factor=2, mode="nearest"),
    )
    height = Dim("height", min=1, max=10)
    steps = [(torch.randn(1, 3, 2 * n, 12),) for n in (4, 1, 2, 3, 10, 4)]
    return Case(model, steps, shapes=({2: 2 * height},), atol=1e-4)


def sizes_out() -> Case:
    """Integers that leave the program, beside what has those sizes."""
    size = Dim("size", min=1, max=33)
    steps = [(torch.randn(n, 4),) for n in (7, 1, 2, 33, 16)]
    return of(
        lambda x: (x.size(0), x + 1, 3 * x.size(0) + 2, x.size(0) // 4),
        *steps,
        dims=[{0: size}],
    )


def live_slice_of_a_constant() -> Case:
    """How much of a table is read depends on the size."""
    size = Dim("size", min=1, max=12)
    return Case(
        Of(lambda m, x: x + m.w[: x.size(0)], w=torch.randn(12, 5)),
        [(torch.randn(n, 5),) for n in (5, 1, 2, 12, 7, 5)],
        shapes=(({0: size},),),
    )


def attention_over_both() -> Case:
    """Queries and keys of different lengths, with a mask."""
    q, k = Dim("q", min=1, max=16), Dim("k", min=1, max=40)

    def inputs(n: int, m: int) -> Inputs:
        heads = (torch.randn(1, 2, each, 16) for each in (n, m, m))
        return (*heads, torch.randn(1, 1, n, m))

    pairs = ((3, 5), (1, 1), (16, 40), (1, 40), (16, 1), (8, 33), (3, 5))
    return of(
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
        *(inputs(*pair) for pair in pairs),
        dims=[{2: q}, {2: k}, {2: k}, {2: q, 3: k}],
        atol=1e-4,
    )


PROGRAMS: Programs = {
    **named(wide_sizes, two_sizes, from_four, the_second, inside_an_expression),
    **named(tied_extents, strided, pictures, sizes_out, live_slice_of_a_constant),
    **named(attention_over_both),
    **{f"sizes of {name}": lambda name=name: sized(name) for name in CASES},
}
