"""Pooling against eager: windows, padding, ceil_mode, divisors, NaN, dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import check_op, lower
from torch.export import Dim
from torch.nn import functional as F


def test_two_dimensions() -> None:
    def pools(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *F.max_pool2d(x, 3, 2, 1, return_indices=True),
            F.max_pool2d(x, (2, 3), ceil_mode=True),
            F.max_pool2d(x, 3, 1, 1, dilation=2),
            F.max_pool2d(x[0], (1, 7), (2, 1)),
            F.avg_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
            F.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True, count_include_pad=False),
            F.avg_pool2d(x, 3, 2, 0, divisor_override=5),
            F.adaptive_avg_pool2d(x, (5, 3)),
            F.adaptive_avg_pool2d(x, (1, 1)),
            F.relu(F.max_pool2d(x, 3, 2, 1) + 0.5),
        )

    check_op(pools, torch.randn(2, 3, 37, 7))


def test_one_dimension() -> None:
    def pools(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *F.max_pool1d(x, 3, 2, 1, return_indices=True),
            F.max_pool1d(x[0], 5, 3, 2, dilation=2, ceil_mode=True),
            F.avg_pool1d(x, 4, 3, 2, ceil_mode=True),
            F.avg_pool1d(x, 3, 1, 1, count_include_pad=False),
            F.adaptive_avg_pool1d(x, 5),
            F.adaptive_avg_pool1d(x, 1),
        )

    check_op(pools, torch.randn(3, 7, 37))


def test_three_dimensions() -> None:
    def pools(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *F.max_pool3d(x, 3, 2, 1, return_indices=True),
            F.max_pool3d(x, (1, 2, 3), ceil_mode=True),
            F.avg_pool3d(x, 3, 2, 1),
            F.avg_pool3d(x, 2, ceil_mode=True, count_include_pad=False),
            F.avg_pool3d(x, 3, 2, 1, divisor_override=2),
            F.adaptive_avg_pool3d(x, (3, 2, 4)),
            F.adaptive_avg_pool3d(x, 1),
        )

    check_op(pools, torch.randn(2, 3, 9, 8, 7))


def samples(*shape: int) -> torch.Tensor:
    """Random ones in [0, 1], among them both ends."""
    made = torch.rand(shape)
    made.view(-1)[:2] = torch.tensor([0.0, 1.0])
    return made


def pooled(
    kernel: Any, size: Any
) -> Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]:
    def pools(x: torch.Tensor, given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pool = F.fractional_max_pool2d if len(size) == 2 else F.fractional_max_pool3d
        return pool(x, kernel, size, return_indices=True, _random_samples=given)

    return pools


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_fractional_maximum(dtype: torch.dtype) -> None:
    """Windows begin where eager has them, in the arithmetic of the type."""
    x = torch.randn(3, 7, 37, 113).to(dtype)
    x[0, 0, 3, 4], x[0, 1], x[1, 0, 2, 2] = float("nan"), -float("inf"), float("inf")
    u = samples(3, 7, 2).to(dtype)
    for kernel, size in ((2, (25, 71)), ((3, 1), (35, 113)), ((37, 5), (1, 2))):
        check_op(pooled(kernel, size), x, u, rtol=0, atol=0)
    x, u = torch.randn(2, 3, 11, 13, 17).to(dtype), samples(2, 3, 3).to(dtype)
    check_op(pooled((2, 3, 1), (5, 7, 11)), x, u, rtol=0, atol=0)
    check_op(pooled(2, (9, 1, 3)), x[0], u[:1], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_fractional_windows_of_long_rows(dtype: torch.dtype) -> None:
    """Places beyond what the type's own numbers tell apart are rounded as in eager."""
    x = torch.arange(3001.0).to(dtype).repeat(1, 64, 1, 1)
    pools = pooled((1, 3), (1, 1999))
    check_op(lambda x, u: pools(x, u)[1], x, samples(1, 64, 2).to(dtype))


def test_fractional_maximum_by_a_ratio_and_of_nothing() -> None:
    def pools(x: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.relu(F.fractional_max_pool2d(x, 2, None, (0.5, 0.7), _random_samples=u)),
            F.fractional_max_pool2d(x[:, 0], 2, 3, _random_samples=u[:1, :2]),
            F.fractional_max_pool2d(x[:0], 2, 3, _random_samples=u[:0]),
        )

    check_op(pools, torch.randn(2, 3, 11, 13), samples(2, 3, 2))


def test_fractional_maximum_of_dynamic_sizes() -> None:
    batch, height = Dim("n", max=5), Dim("h", min=7, max=37)
    width = Dim("w", min=7, max=29)
    sizes = ((5, 37, 29), (1, 7, 7), (2, 13, 8), (5, 37, 29))
    cases = [(torch.randn(n, 3, h, w), samples(n, 3, 2)) for n, h, w in sizes]
    check_op(
        pooled((3, 2), (4, 5)),
        *cases[0],
        dynamic_shapes=({0: batch, 2: height, 3: width}, {0: batch}),
        others=cases[1:],
    )


def test_many_fractional_outputs() -> None:
    """More outputs than one grid dimension has workgroups of 64."""
    x, u = torch.randn(1, 1, 2200, 2200), samples(1, 1, 2)
    check_op(pooled(2, (2050, 2050)), x, u)


def test_samples_that_torch_draws_stay_on_the_cpu() -> None:
    class Pool(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.fractional_max_pool2d(x, 2, (3, 3))

    program = lower(Pool(), (torch.randn(1, 2, 7, 7),))
    assert "aten.fractional_max_pool2d.default" in program.report.delegated
    assert [fallback.op for fallback in program.report.fallbacks] == [
        "aten.rand.default"
    ]
    x = torch.randn(1, 2, 7, 7)
    (result,) = program.run(x)
    assert torch.isin(result, x).all()


def test_maximum_of_nan_and_infinities() -> None:
    x = torch.randn(2, 3, 17, 15)
    x[0, 0, 3, 4] = float("nan")
    x[0, 1] = -float("inf")
    x[1, 0, 2, 2] = float("inf")
    check_op(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x)


def test_integers() -> None:
    x = torch.randint(-99, 99, (2, 3, 17, 15))
    check_op(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x)
    check_op(lambda x: F.max_pool2d(x, 2), x.int())


def test_half() -> None:
    def pools(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3), F.adaptive_avg_pool2d(x, 3)

    check_op(pools, torch.randn(1, 3, 17, 15).half())
    check_op(pools, torch.randn(1, 3, 17, 15).bfloat16())


def test_transposed_input() -> None:
    x = torch.randn(2, 3, 17, 15).to(memory_format=torch.channels_last)
    check_op(lambda x: (F.max_pool2d(x, 3), F.avg_pool2d(x.transpose(2, 3), 3)), x)


def test_unused_indices_are_not_computed() -> None:
    """One kernel with one output: the indices of a max pool cost nothing."""
    program = check_op(lambda x: F.max_pool2d(x, 2), torch.randn(1, 3, 8, 8))
    assert "aten.max_pool2d_with_indices.default" in program.report.delegated


def test_empty_batch() -> None:
    check_op(
        lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 2)), torch.zeros(0, 3, 8, 8)
    )


def test_many_outputs() -> None:
    """More outputs than one grid dimension has workgroups of 64."""
    x = torch.randn(1, 1, 2100, 2100)
    check_op(lambda x: F.avg_pool2d(x, 2, 1), x)


def test_dynamic_sizes() -> None:
    height, width = Dim("h", min=4, max=37), Dim("w", min=4, max=29)

    def pools(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.max_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
            F.adaptive_avg_pool2d(x, (3, 2)),
        )

    sizes = ((37, 29), (4, 7), (13, 4), (37, 29))
    inputs = [(torch.randn(1, 3, *size),) for size in sizes]
    shapes = ({2: height, 3: width},)
    check_op(pools, *inputs[0], dynamic_shapes=shapes, others=inputs[1:])
