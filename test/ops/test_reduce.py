"""Reductions and running totals against eager, and long rows against fp64.

Every case runs by the kernels for CPU adapters and by those for GPUs.
"""

from __future__ import annotations

import torch
from forms import check_forms, run_other
from harness import lower
from torch.export import Dim

INF, NAN = float("inf"), float("nan")


def _sums(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        x.sum(),
        x.sum(1),
        x.sum((0, 2), keepdim=True),
        x.permute(2, 0, 1).sum((0, 2)),
        x[:, 1:].sum(-1),
        x.sum(0) * 2 + 1,
        x.half().sum(1),
        x.bfloat16().sum(1),
        n.sum(),
        n.sum(1),
        (n > 0).sum(0),
        n.sum(dtype=torch.float32),
        x.sum(dtype=torch.int64),
        x.nansum(1),
        n.count_nonzero(1),
        x.mean(),
        x.mean((1, 2)),
        x.mean(0, keepdim=True),
        x.half().mean(-1),
        n.prod(),
        n.prod(1),
        x.prod(0),
    )


def _searches(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        x.amax(),
        x.amin((0, 2)),
        n.amax(1),
        x.max(),
        n.min(),
        *x.max(1),
        *x.min(-1, keepdim=True),
        *n.max(0),
        x.argmax(),
        x.argmin(1),
        x.permute(2, 1, 0).argmax(),
        n.argmax(1, keepdim=True),
        *x.aminmax(),
        *x.aminmax(dim=1),
        (x > 1).any(),
        (x > 1).any(1),
        x.any((0, 1)),
        (n > -4).all(),
        (n > 0).all(1),
        torch.all(x, (0, 1)),
    )


def _spreads(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        x.var(),
        x.var(1),
        x.std((0, 1), keepdim=True),
        x.var((0, 2), correction=0),
        *torch.var_mean(x, 1),
        *torch.std_mean(x, (0, 1), correction=2),
        (x + 100).var(1),
        x.norm(),
        torch.linalg.vector_norm(x, dim=1),
        torch.linalg.vector_norm(x, 1, (0, 2)),
        torch.linalg.vector_norm(x, 3, 0),
        torch.linalg.vector_norm(x, INF, 2, keepdim=True),
        torch.linalg.vector_norm(x, -INF, 2),
        torch.linalg.vector_norm(x, 0, 1),
        x.logsumexp(1),
        x.logsumexp((0, 2)),
        torch.nn.functional.normalize(x, dim=1),
    )


def test_dimensions_and_types() -> None:
    def every(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (*_sums(x, n), *_searches(x, n), *_spreads(x))

    # Integers whose product still fits the 32 bits that a GPU has.
    check_forms(
        every, torch.randn(3, 113, 37), torch.randint(0, 2, (3, 113)) * 2 - 1, atol=1e-4
    )


def test_nan_and_infinity() -> None:
    x = torch.randn(6, 37)
    x[0, 3], x[1, 5], x[2, 7] = NAN, INF, -INF
    x[3] = -INF
    x[4] = INF
    x[5, 1::2] = x[5, ::2][:18]

    def reductions(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.sum(1),
            x.amax(1),
            x.amin(1),
            *x.max(1),
            *x.min(1),
            x.argmax(),
            x.any(1),
            x.logsumexp(1),
            x.var(1),
            x.nansum(1),
            torch.linalg.vector_norm(x, 3, 1),
            torch.linalg.vector_norm(x, INF, 1),
            x.max(),
        )

    check_forms(reductions, x)


def test_nothing_to_reduce() -> None:
    def reductions(x: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.sum(1),
            x.mean(1),
            x.prod(1),
            x.any(1),
            x.all(1),
            x.var(1),
            x.sum(0),
            x.amax(0),
            x.cumsum(1),
            s.sum(),
            s.mean(0),
            s.amax(),
            s.argmax(),
            s.var(),
            s.cumsum(0),
            s.any(),
        )

    check_forms(reductions, torch.randn(3, 0), torch.randn(()))


def test_long_rows_are_accurate() -> None:
    x = torch.rand(3, 200_003) + 1000
    program = lower(_Long(), (x,))
    wide = x.double()
    expected = (
        wide.sum(1),
        wide.mean(),
        wide.var(1),
        wide.cumsum(1),
        wide.sum(0),
        wide.logsumexp(1),
    )
    for results in (program(x), run_other(program, x)):
        for result, wanted in zip(results, expected):
            # The fewer lanes a driver has, the more each of them sums.
            torch.testing.assert_close(result.double(), wanted, rtol=3e-6, atol=0)


class _Long(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(1), x.mean(), x.var(1), x.cumsum(1), x.sum(0), x.logsumexp(1)


def test_many_rows() -> None:
    n = torch.arange(4_194_304 + 64).remainder(7).view(-1, 2).int()
    check_forms(lambda n: (n.sum(1), n.amax(1)), n)


def test_running_totals() -> None:
    def totals(
        x: torch.Tensor, n: torch.Tensor, b: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return (
            x.cumsum(1),
            x.cumsum(-1),
            n.cumsum(0),
            (n > 0).cumsum(1),
            n.cumsum(1, dtype=torch.float32),
            x.cumprod(1),
            x.logcumsumexp(1),
            b.cumsum(1),
            b.T.cumsum(0),
            b.logcumsumexp(1),
            (b > 0).cumsum(1) + 1,
        )

    b = torch.randn(3, 1000)
    b[1, 500], b[2, 0] = NAN, -INF
    n = torch.randint(-3, 4, (4, 7))
    check_forms(totals, torch.randn(4, 7, 3), n, b, atol=1e-4)


def test_dynamic_sizes() -> None:
    def reductions(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.sum(1),
            x.mean(0),
            x.var(1, correction=0),
            *x.max(1),
            x.logsumexp(0),
            x.cumsum(1),
            x.sum(),
        )

    rows, columns = Dim("rows", min=1, max=37), Dim("columns", min=1, max=700)
    sizes = [(37, 700), (7, 113), (1, 1), (37, 700), (2, 300)]
    check_forms(
        reductions,
        torch.randn(36, 699),
        dynamic_shapes=({0: rows, 1: columns},),
        others=[(torch.randn(size),) for size in sizes],
        atol=1e-4,
    )
