"""Shapes and orders in memory that are not the usual ones."""

from __future__ import annotations

from typing import Any

import torch
from test_dynamic import Of

from .case import Case, Programs, named, of


def empty() -> Case:
    return of(
        lambda x, y: (x + 1, torch.cat([x, y]), x.sum(0), x.t()),
        (torch.randn(0, 3), torch.randn(2, 3)),
    )


def scalars() -> Case:
    steps = [(torch.randn(2, 3), torch.tensor(2.5 + n)) for n in range(2)]
    return of(lambda x, s: (x * s, s + 1, x.sum(), x.argmax(), s.exp()), *steps)


def many_dimensions() -> Case:
    x = torch.randn(2, 1, 3, 2, 1, 2, 3, 2)
    return of(lambda x: (x.permute(7, 1, 5, 3, 0, 2, 4, 6) * 2, x.sum((0, 3, 6))), (x,))


def channels_last() -> Case:
    x = torch.randn(2, 3, 5, 7).to(memory_format=torch.channels_last)
    return of(lambda x: (x * 2, (x + 1).contiguous(), x.mean(1)), (x,))


def made_channels_last() -> Case:
    x = torch.randn(2, 3, 5, 7)
    return of(lambda x: x.to(memory_format=torch.channels_last) + 1, (x,))


def views_out() -> Case:
    """Results that are views of one another and of inputs, and one twice."""

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x + y
        return z, z.t(), z[1:], y.reshape(-1), z.sum(), z * 1, z * 1

    return of(function, *[(torch.randn(3, 5), torch.randn(3, 5)) for _ in range(2)])


def nothing_computed() -> Case:
    """Constants alone: no dispatch depends on the input."""
    return Case(
        Of(lambda m, x: (m.w * 2, x + 1), w=torch.randn(3, 4)), [(torch.randn(2),)]
    )


def many_elements() -> Case:
    """A grid that is folded into two dimensions."""
    x = torch.randint(-1000, 1000, (65536 * 64 + 3,), dtype=torch.int32)
    return of(lambda x: x * 2 + 1, (x,))


PROGRAMS: Programs = {
    **named(empty, scalars, many_dimensions, channels_last, made_channels_last),
    **named(views_out, nothing_computed, many_elements),
}
