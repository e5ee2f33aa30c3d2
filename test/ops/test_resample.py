"""Resampling against eager: every mode, factor and size, grids, shuffles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import executorch.backends.vulkan.custom_ops_lib  # noqa: F401
import pytest
import torch
from harness import check_op, lower
from torch.export import Dim
from torch.nn import functional as F

Results = tuple[torch.Tensor, ...]


def test_images() -> None:
    def resize(x: torch.Tensor) -> Results:
        return (
            F.interpolate(x, scale_factor=2.0),
            F.interpolate(x, size=(11, 12)),
            F.interpolate(x, scale_factor=1.7),
            F.interpolate(x, size=(3, 4), mode="nearest-exact"),
            F.interpolate(x, scale_factor=2.5, mode="nearest-exact"),
            F.interpolate(x, scale_factor=2.5, mode="bilinear"),
            F.interpolate(
                x, scale_factor=0.6, mode="bilinear", recompute_scale_factor=True
            ),
            F.interpolate(x, size=(1, 13), mode="bilinear", align_corners=True),
            F.interpolate(x, size=(13, 1), mode="bilinear"),
            F.interpolate(x, scale_factor=2.5, mode="bicubic"),
            F.interpolate(x, size=(3, 9), mode="bicubic", align_corners=True),
            F.interpolate(x, size=(3, 4), mode="area"),
            F.interpolate(x, scale_factor=2.0).relu() * 2,
        )

    check_op(resize, torch.randn(2, 3, 7, 5))


def test_antialias() -> None:
    def resize(x: torch.Tensor) -> Results:
        return (
            F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True),
            F.interpolate(x, size=(50, 3), mode="bilinear", antialias=True),
            F.interpolate(x, size=(3, 9), mode="bicubic", antialias=True),
            F.interpolate(x, scale_factor=(0.4, 1.7), mode="bicubic", antialias=True),
        )

    check_op(resize, torch.randn(2, 3, 37, 13))


def test_signals_and_volumes() -> None:
    def resize(x: torch.Tensor, y: torch.Tensor) -> Results:
        return (
            F.interpolate(x, scale_factor=2.0),
            F.interpolate(x, size=3, mode="nearest-exact"),
            F.interpolate(x, scale_factor=2.5, mode="linear"),
            F.interpolate(x, size=9, mode="linear", align_corners=True),
            F.interpolate(x, size=3, mode="area"),
            F.interpolate(y, scale_factor=2.0),
            F.interpolate(y, size=(3, 4, 5), mode="nearest-exact"),
            F.interpolate(y, scale_factor=2.5, mode="trilinear"),
            F.interpolate(y, size=(3, 4, 5), mode="trilinear", align_corners=True),
            F.interpolate(y, size=(3, 1, 5), mode="area"),
        )

    check_op(resize, torch.randn(2, 3, 7), torch.randn(2, 3, 4, 5, 6))


def test_other_types() -> None:
    half = torch.randn(1, 3, 7, 5).half()

    def resize(x: torch.Tensor) -> Results:
        return (
            F.interpolate(x, scale_factor=2),
            F.interpolate(x, scale_factor=2, mode="bilinear"),
            F.interpolate(x, scale_factor=2, mode="bicubic"),
        )

    check_op(resize, half)
    picture = torch.randint(0, 256, (1, 3, 7, 5), dtype=torch.uint8)
    check_op(lambda x: F.interpolate(x, scale_factor=3), picture)


def test_bytes_are_exact() -> None:
    """As torch: integer weights, and a byte between the two directions."""

    def resize(x: torch.Tensor) -> Results:
        def to(**how: Any) -> torch.Tensor:
            return F.interpolate(x, mode="bilinear", **how)

        return (
            to(scale_factor=2),
            to(scale_factor=(1.7, 0.3)),
            to(scale_factor=(1.01, 3.3)),  # as many rows as before
            to(scale_factor=0.6, recompute_scale_factor=True),
            to(size=(11, 12)),
            to(size=(100, 2)),
            to(size=(1, 13)),
            to(size=(29, 64), align_corners=True),
            to(size=(1, 5), align_corners=True),
            to(size=(2, 3), align_corners=True),
            to(size=(37, 13)) + 1,
        )

    for channels in (1, 3, 5):
        picture = torch.randint(0, 256, (2, channels, 37, 13), dtype=torch.uint8)
        check_op(resize, picture)
    check_op(resize, torch.full((1, 3, 8, 7), 255, dtype=torch.uint8))
    check_op(
        lambda x: F.interpolate(x, size=(700, 1001), mode="bilinear"),
        torch.randint(0, 256, (1, 3, 511, 997), dtype=torch.uint8),
    )


def test_bytes_of_dynamic_sizes() -> None:
    inputs = [
        (torch.randint(0, 256, (1, 3, size, 6), dtype=torch.uint8),)
        for size in (37, 2, 10, 20, 37)
    ]
    check_op(
        lambda x: (
            F.interpolate(x, scale_factor=1.3, mode="bilinear"),
            F.interpolate(x, size=(x.shape[2] * 2 + 1, 9), mode="bilinear"),
        ),
        *inputs[0],
        dynamic_shapes=({2: Dim("h", min=2, max=37)},),
        others=inputs[1:],
    )


def test_bytes_of_a_long_ratio_stay_on_the_cpu() -> None:
    class Resize(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.interpolate(x, size=(3, 40009), mode="bilinear")

    picture = torch.randint(0, 256, (1, 1, 2, 30011), dtype=torch.uint8)
    report = lower(Resize(), (picture,)).report
    assert "short ratio, got (30011, 40009)" in str(report)


def test_float64_falls_back() -> None:
    x = torch.randn(1, 3, 4, 4).double()
    check_op(lambda x: F.interpolate(x, scale_factor=2), x, delegated=False)


@pytest.mark.parametrize(
    "resize",
    [
        lambda x: F.interpolate(x, scale_factor=2.0),
        lambda x: F.interpolate(x, scale_factor=1.3, mode="bilinear"),
        lambda x: F.interpolate(
            x, size=(x.shape[2] * 2, 9), mode="bilinear", align_corners=True
        ),
        lambda x: F.pixel_shuffle(x, 2),
    ],
    ids=["nearest", "factor", "size", "pixel_shuffle"],
)
def test_dynamic_sizes(resize: Callable[[torch.Tensor], torch.Tensor]) -> None:
    height = Dim("h", min=2, max=37)
    inputs = [(torch.randn(1, 4, size, 6),) for size in (37, 2, 10, 20, 37)]
    shapes = ({2: height},)
    check_op(resize, *inputs[0], dynamic_shapes=shapes, others=inputs[1:])


def test_many_outputs() -> None:
    """More outputs than one grid dimension has workgroups of 64."""
    check_op(
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        torch.randn(1, 1, 1100, 1100),
    )


_PADDING = ("zeros", "border", "reflection")


def _sample(modes: tuple[str, ...]) -> Callable[[torch.Tensor, torch.Tensor], Results]:
    return lambda x, grid: tuple(
        F.grid_sample(x, grid, mode, padding, corners)
        for mode in modes
        for padding in _PADDING
        for corners in (False, True)
    )


def test_grid_of_an_image() -> None:
    sample = _sample(("bilinear", "nearest", "bicubic"))
    check_op(sample, torch.randn(2, 3, 7, 5), torch.randn(2, 4, 6, 2) * 1.5)


def test_grid_of_a_volume() -> None:
    sample = _sample(("bilinear", "nearest"))
    check_op(sample, torch.randn(2, 3, 7, 5, 4), torch.randn(2, 4, 6, 3, 3) * 1.5)


def test_grid_with_nan_and_far_points() -> None:
    grid = torch.randn(1, 4, 6, 2)
    grid[0, 0, 0, 0] = float("nan")
    grid[0, 1, 0, 0] = 1e30
    grid[0, 2, 0, 1] = -float("inf")
    sample = _sample(("bilinear", "nearest", "bicubic"))
    check_op(sample, torch.randn(1, 3, 7, 5), grid)


def test_affine_grid() -> None:
    def grids(theta: torch.Tensor, volume: torch.Tensor) -> Results:
        return (
            F.affine_grid(theta, [2, 3, 5, 6], align_corners=False),
            F.affine_grid(theta, [2, 3, 5, 6], align_corners=True),
            F.affine_grid(volume, [2, 3, 5, 6, 4], align_corners=True),
        )

    check_op(grids, torch.randn(2, 2, 3), torch.randn(2, 3, 4))


def test_priors_of_a_grid() -> None:
    def priors(x: torch.Tensor, y: torch.Tensor) -> Results:
        grids = torch.ops.et_vk.grid_priors
        return grids(x, 8, 0.5), grids(x[0, 0, 0:1], 3, -0.1) + 1, grids(y, 16, 0.0)

    x, y = torch.randn(2, 3, 7, 5), torch.ones(4, 0, dtype=torch.int32)
    check_op(priors, x, y)
    check_op(priors, x.half(), y)
    inputs = [(torch.randn(1, n, 5), y) for n in (37, 1, 10, 37)]
    check_op(
        lambda x, y: torch.ops.et_vk.grid_priors(x, 8, 0.5),
        *inputs[0],
        dynamic_shapes=({1: Dim("h", max=37)}, None),
        others=inputs[1:],
    )


def test_shuffles() -> None:
    def shuffle(x: torch.Tensor) -> Results:
        return (
            F.pixel_shuffle(x, 2) + 1,
            F.pixel_shuffle(x[0], 2),
            F.pixel_shuffle(x.transpose(2, 3), 2),
            F.pixel_unshuffle(x, 2) * 2,
            F.channel_shuffle(x, 4),
            F.channel_shuffle(x.transpose(2, 3), 3),
            F.glu(x, 1),
        )

    check_op(shuffle, torch.randn(3, 12, 6, 4))
    check_op(lambda x: F.pixel_shuffle(x, 3), torch.randint(0, 9, (1, 9, 7, 5)))
