"""Pooling against eager: windows, padding, ceil_mode, divisors, NaN, dynamic sizes."""

from __future__ import annotations

import torch
from harness import check_op
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
