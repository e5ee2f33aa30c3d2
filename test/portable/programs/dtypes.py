"""Types of tensors, and values that a type or an index cannot have."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .case import Case, Fails, Programs, Step, named, of

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def label(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def numbers(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 100, shape).to(dtype)


def typed(dtype: torch.dtype) -> Case:
    """In and out as that type, and as others."""

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        total = x.sum() if dtype is not torch.bool else x.any()
        both = torch.where(x > y, x, y)
        return both, x == y, total, x.float() * 0.5, torch.cat((x, y), 1), x.t()

    steps: list[Step] = []
    steps += [(numbers(dtype, 3, 5), numbers(dtype, 3, 5)) for _ in range(3)]
    other = torch.float32 if dtype is not torch.float32 else torch.int32
    wrong = (numbers(other, 3, 5), numbers(dtype, 3, 5))
    flat = (numbers(dtype, 15), numbers(dtype, 3, 5))
    steps += [Fails(wrong, ""), Fails(flat, ""), steps[0]]
    return of(function, *steps, trusts=False)


def extremes() -> Case:
    """What has no neighbours in its type: infinities, NaN, halves that underflow."""
    x = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 65504.0, 1e-7, 1e38])
    return of(
        lambda x, h, b: (x * 1, h * 1, b * 1, x.half(), x.bfloat16(), -x, x.isnan()),
        (x, x.half(), x.bfloat16()),
        has_eager=False,
    )


def long_values() -> Case:
    """int64 is int32 inside: what does not fit is an error, in and out."""
    fits = torch.tensor([2**31 - 1, -(2**31), 0, -1])
    beyond = [torch.tensor([0, bad, 0, 0]) for bad in (2**31, -(2**31) - 1, 2**62)]
    return of(
        lambda x: (x * 1, x // 2, x < 0),
        (fits,),
        *(Fails((bad,), "int64 values must fit int32") for bad in beyond),
        (fits,),
    )


def long_results() -> Case:
    x = torch.tensor([1, 2, 3])
    large = torch.tensor([2**30, 1, 2])
    said = "an int64 must fit int32 on the GPU"
    return of(lambda x: x * x + x, (x,), Fails((large,), said), (x,))


def divided_by() -> Case:
    x, y = torch.tensor([7, 8, 9]), torch.tensor([2, 3, -4])
    zero = torch.tensor([2, 0, 1])
    return of(lambda x, y: (x // y, x % y), (x, y), Fails((x, zero), "got 0"), (x, y))


def indices() -> Case:
    """An index out of range, of either sign."""
    table = nn.Embedding(11, 3)
    good = torch.tensor([[10, 0], [1, 2]])
    return Case(
        table,
        [
            (good,),
            Fails((torch.tensor([[1, 11], [0, 0]]),), "got 11"),
            Fails((torch.tensor([[1, -1], [0, 0]]),), "got -1"),
            Fails((torch.tensor([[1, 2**40], [0, 0]]),), "int64 values must fit"),
            Fails((good.int(),), ""),
            Fails((good[0],), ""),
            Fails((good, good), ""),
            (good,),
        ],
    )


def places() -> Case:
    x, at, y = torch.randn(5, 4), torch.tensor([4, 0]), torch.randn(2, 4)
    bad = torch.tensor([5, 0])
    return of(
        lambda x, at, y: (x[at], x.index_put((at,), y)),
        *((x, at, y), Fails((x, bad, y), "got 5"), (x, at - 5, y), (x, at, y)),
    )


PROGRAMS: Programs = {
    **named(extremes, long_values, long_results, divided_by, indices, places),
    **{
        f"type {label(dtype)}": lambda dtype=dtype: typed(dtype)
        for dtype in (*FLOATS, *INTS)
    },
}
