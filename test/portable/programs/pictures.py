"""Convolutions whose kernels for CPU adapters read weights as the file has them, and
those for GPUs in tiles, strips and phases."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim

from .case import Case, Programs, named


def picture(model: nn.Module, *shapes: tuple[int, ...]) -> Case:
    return Case(model, [(torch.randn(shape),) for shape in shapes], atol=1e-4)


def narrow() -> Case:
    """One pixel wide: lines on CPU adapters."""
    model = nn.Sequential(
        nn.Conv2d(3, 9, (8, 1), (4, 1), (3, 0)), nn.ReLU(), nn.Conv2d(9, 5, (3, 1))
    )
    return picture(model, (2, 3, 41, 1))


def enlarged() -> Case:
    """Phases, whose taps are a part of the filters."""
    model = nn.Sequential(
        nn.ConvTranspose2d(4, 6, 4, 2, 1), nn.PReLU(6), nn.ConvTranspose2d(6, 3, 3)
    )
    return picture(model, (1, 4, 7, 9))


def grouped() -> Case:
    """A last block of filters that is not full."""
    model = nn.Sequential(
        nn.Conv2d(6, 22, 5, stride=2, padding=2, groups=2), nn.Conv2d(22, 7, 1)
    )
    return picture(model, (2, 6, 15, 18))


def volume() -> Case:
    return picture(nn.Conv3d(2, 5, (2, 3, 3), dilation=(1, 2, 1)), (1, 2, 5, 9, 8))


def many_sizes() -> Case:
    """Heights that vary, by which quads and tiles are filled."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8)
    )
    height = Dim("height", min=4, max=40)
    steps = [(torch.randn(1, 3, n, 11),) for n in (9, 4, 40, 17, 33)]
    return Case(model, steps, shapes=({2: height},), atol=1e-4)


PROGRAMS: Programs = named(narrow, enlarged, grouped, volume, many_sizes)
