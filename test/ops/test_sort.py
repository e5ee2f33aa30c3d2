"""sort, argsort and topk against eager: order of equal elements, NaN, long rows."""

from __future__ import annotations

import pytest
import torch
from harness import check_op
from torch.export import Dim

INF, NAN = float("inf"), float("nan")


def test_values_and_places() -> None:
    def sorts(
        x: torch.Tensor, n: torch.Tensor, b: torch.Tensor, s: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return (
            *x.sort(1),
            *x.sort(0, descending=True),
            *x.transpose(0, 2).sort(-1),
            x.argsort(1),
            *n.sort(dim=1, stable=True),
            *n.sort(dim=0, stable=True, descending=True),
            n.argsort(dim=1, stable=True),
            *(n > 0).sort(dim=1, stable=True),
            *x.half().sort(dim=2, stable=True),
            *x.topk(3),
            *x.topk(2, 0, largest=False),
            *x.topk(0),
            *b.sort(),
            *b.sort(descending=True),
            *b.topk(5),
            *b.topk(150),
            *b.topk(1000, largest=False),
            *s.sort(0),
            *s.topk(1),
            *x[:0].sort(1),
            *x[:0].sort(0),
        )

    x = torch.randn(4, 7, 3)
    x[0, 0, 0], x[1, 2, 1], x[2, 2, 2] = NAN, INF, -INF
    b = torch.randn(3, 1000)
    b[0, 5], b[2, 900], b[1, 3], b[1, 700] = NAN, NAN, -INF, INF
    check_op(sorts, x, torch.randint(-4, 4, (37, 7)), b, torch.randn(()))


def test_equal_elements_keep_their_order() -> None:
    x = torch.randint(0, 5, (3, 1013)).float()
    x[0, ::7] = NAN
    x[1, ::3] = -0.0

    def sorts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.argsort(dim=1, stable=True),
            x.argsort(dim=1, stable=True, descending=True),
            x.argsort(dim=0, stable=True),
        )

    check_op(sorts, x)


@pytest.mark.parametrize("length", [1, 64, 129])
def test_lengths(length: int) -> None:
    n = torch.randperm(length * 3).view(3, length).int()
    check_op(lambda n: (*n.sort(), n.argsort(descending=True), *n.topk(1)), n)


def test_long_rows() -> None:
    n = torch.randperm(100_003)
    check_op(lambda n: (*n.sort(), *n.topk(50), *n.topk(7, largest=False)), n)


def test_many_rows() -> None:
    n = torch.randint(0, 1000, (4_194_304 // 3 + 64, 3)).int()
    check_op(lambda n: n.sort(1)[0], n)


def test_dynamic_sizes() -> None:
    def sorts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return *x.sort(1), *x.sort(0), *x.topk(1)

    rows, columns = Dim("rows", min=1, max=37), Dim("columns", min=1, max=700)
    sizes = [(37, 700), (7, 113), (1, 1), (37, 700), (2, 129)]
    check_op(
        sorts,
        torch.randn(36, 699),
        dynamic_shapes=({0: rows, 1: columns},),
        others=[(torch.randn(size),) for size in sizes],
    )
