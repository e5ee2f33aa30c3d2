"""Convolutions in strips and in phases, and products of int8, on GPUs: right at odd
sizes, for every layout."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from gpu_plans import GPU, check
from harness import lower
from test_tint import Builder, Constant, filled, real, weight, whole
from torch import nn
from torch.nn import functional as F

from executorch_webgpu import ir
from executorch_webgpu.ir import serialize
from executorch_webgpu.ops.quantized import integer_matmul
from executorch_webgpu.plan.planner import Planner


class Strips(nn.Module):
    """Few filters in a group: planes that fill workgroups and planes that do not;
    strided, dilated and transposed; 5 filters, in blocks of 3 and 2; lines and volumes;
    a large kernel; half precision; a sliced input."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.strided = nn.Conv2d(6, 12, (5, 3), (2, 3), (2, 0), (1, 2), groups=6)
        self.grouped = nn.Conv2d(6, 10, (2, 3), padding=(1, 1), groups=2, bias=False)
        self.line = nn.Conv1d(6, 6, 4, padding=3, groups=6)
        self.turned = nn.ConvTranspose2d(6, 6, 3, (2, 1), padding=1, groups=6)
        self.large = nn.Conv2d(6, 6, (7, 9), (1, 2), (3, 2), groups=6)
        self.volume = nn.Conv3d(3, 3, (2, 3, 1), (2, 1, 1), 1, groups=3)
        self.halves = nn.Conv2d(4, 4, 3, stride=2, groups=4).half()

    def forward(self, x, v, h):
        return (
            self.depthwise(x),  # 15 x 13: a workgroup has a plane
            F.relu6(self.strided(x)),
            self.grouped(x[:, :, 1:, ::2]),
            self.line(x[:, :, 0]),
            self.turned(x),
            self.large(x),
            self.volume(v),
            F.gelu(self.halves(h)),
        )


@functools.cache
def strips() -> ir.Graph:
    shapes = [(2, 6, 15, 13), (2, 3, 4, 6, 7)]
    halves = torch.zeros(1, 4, 9, 11, dtype=torch.float16)
    program = lower(Strips(), (*map(torch.zeros, shapes), halves))
    ((_, blob),) = program.delegates
    return serialize.read(blob)


def test_strips() -> None:
    check(strips, ["conv_strip"])
    pipelines = Planner(strips(), GPU).upper_bound().pipelines
    assert {pipeline.label for pipeline in pipelines} == {"conv_strip"}
    alone = {"const ALONE = true;" in pipeline.wgsl for pipeline in pipelines}
    assert alone == {True, False}


@functools.cache
def phases() -> ir.Graph:
    """A transposed convolution, which is two."""
    weights, windows = weight(17, 20, 2, 3), ([1, 2], [1, 0], [1, 1])
    args = [real(2, 17, 9, 5), weights, weight(20), *windows, True, [0, 1], 1]
    name = "aten.convolution.default"
    return Builder(name, filled(name, args)).graph


def test_phases_in_tiles() -> None:
    check(phases, ["conv_tiled"])


@functools.cache
def codes() -> ir.Graph:
    """Two groups of 5 int8 channels, strided and dilated, on 2 images."""
    x, weights = whole(2, 10, 15, 26, dtype=torch.int8), weight(6)
    filters = Constant(whole(6, 5, 3, 2, dtype=torch.int8))
    args = [x, 0.05, -3, filters, weights, weight(6), [1, 2], [2, 1], [2, 1], 2]
    return Builder("webgpu.conv_codes", [*args, [real(2, 6, 15, 14)]]).graph


def test_strips_of_codes() -> None:
    check(codes, ["im2col_codes", "conv_strip"])


@functools.cache
def integer_products() -> ir.Graph:
    """9 rows of int8 by words of 8 bits in one group, with 37 outputs."""
    words = Constant(whole(75, 40, dtype=torch.int32))
    weights = [words, weight(1, 40), None, 37, 8, 300, weight(37)]
    x = whole(9, 300, dtype=torch.int8)
    args = [x, 0.05, 3, *weights, [real(9, 37)]]
    return Builder("webgpu.linear_codes", args).graph


@functools.cache
def rounded_products() -> ir.Graph:
    """3 rows by 4 bits in 17 groups, quantized row by row."""
    words = Constant(whole(68, 40, dtype=torch.int32))
    weights = [words, weight(17, 40), weight(17, 40), 37, 4, 32, None]
    args = [real(3, 544), -128, 127, 1e-6, *weights, [real(3, 37)]]
    return Builder("webgpu.linear_rounded", args).graph


@functools.cache
def pointwise_codes() -> ir.Graph:
    """A strided and padded kernel of one tap, on 2 images of 7 channels."""
    weights = Constant(whole(9, 7, 1, 1, dtype=torch.int8))
    x = whole(2, 7, 9, 5, dtype=torch.int8)
    windows = ([2, 1], [1, 0], [1, 1])
    args = [x, 0.05, -3, weights, weight(9), weight(9), *windows, 1]
    return Builder("webgpu.conv_codes", [*args, [real(2, 9, 6, 5)]]).graph


@pytest.mark.parametrize(
    ("graph", "shared"),
    [
        (integer_products, (64, 1)),
        (integer_products, (16, 4)),
        (rounded_products, (16, 4)),
        (pointwise_codes, (64, 1)),
    ],
)
def test_integer_products(
    graph: Callable[[], ir.Graph],
    shared: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(integer_matmul, "SHARED", (shared,))
    check(graph, ["codes_split"])
