"""Distances between rows against eager: cdist, pdist and dist."""

from __future__ import annotations

import pytest
import torch
from harness import check_op, compare, lower
from torch.export import Dim
from torch.nn import functional as F

POWERS = (0.0, 0.5, 1.0, 2.0, 3.0, float("inf"))


def test_between_two_sets() -> None:
    def distances(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.cdist(a, b, power) for power in POWERS)

    a = torch.randn(2, 7, 3)
    a[0, 0] = a[1, 1] = 0
    b = torch.randn(2, 37, 3)
    b[1, 4] = 0
    check_op(distances, a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_of_two_tensors(dtype: torch.dtype) -> None:
    def distances(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        powers = (*POWERS, -float("inf"), -1.0)
        made = [torch.dist(a, b, power) for power in powers]
        small = [torch.dist(a[:, :0], b[:0], power) for power in POWERS[:-1]]
        return (*made, *small, torch.dist(a, b[0, 0]), torch.dist(a, b.float()) * 2)

    a, b = torch.randn(2, 7, 3).to(dtype), torch.randn(7, 3).to(dtype)
    a[0, 0] = b[0]
    check_op(distances, a, b)
    for odd in (float("inf"), float("nan")):
        a[1, 2, 1] = odd
        check_op(distances, a, b)


def test_of_two_tensors_of_any_size() -> None:
    sizes = {0: Dim("rows", max=3001)}
    inputs = [(torch.randn(n, 3), torch.randn(n, 3)) for n in (3001, 1, 11, 3001)]
    check_op(
        lambda a, b: torch.dist(a, b) + torch.dist(a, b, 3),
        *inputs[0],
        dynamic_shapes=[sizes, sizes],
        others=inputs[1:],
    )


def test_within_a_set() -> None:
    def distances(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(F.pdist(x, power) for power in POWERS)

    check_op(distances, torch.randn(37, 5))


def test_large_differences_do_not_overflow() -> None:
    """Torch's own float32 result is infinite; the reference is float64."""
    x = torch.tensor([[1e30, -1e30], [-1e30, 1e30], [float("nan"), 0.0]])
    model = Pairs()
    (result,) = lower(model, (x,))(x)
    compare([result], [model(x.double()).float()])


class Pairs(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.pdist(x, 4.0)
