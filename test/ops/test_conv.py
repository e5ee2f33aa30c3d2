"""Convolution: ranks, strides, pads, dilations, groups, transposed, every form."""

from __future__ import annotations

from dataclasses import replace

import torch
from forms import check_all_forms
from harness import Program, check_op
from torch import nn
from torch.nn import functional as F

from executorch_webgpu.ir import serialize
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.planner import Planner

# Sums of up to a few hundred products, in another order than eager's.
SUMS = {"rtol": 1e-4, "atol": 5e-5}


class Several(nn.Module):
    """Layers side by side, so that one export serves them all."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor):
        return tuple(layer(x) for layer in self.layers)


def labels(program: Program) -> list[str]:
    graph = serialize.read(program.delegates[0][1])
    return [s.label for s in Planner(graph, AOT_CAPS).upper_bound().dispatches]


def test_two_dimensions():
    model = Several(
        nn.Conv2d(6, 7, 3, padding=1),
        nn.Sequential(nn.Conv2d(6, 37, 3, stride=2, padding=1, bias=False), nn.ReLU()),
        nn.Conv2d(6, 12, 1),
        nn.Conv2d(6, 9, 1, stride=2),
        nn.Conv2d(6, 24, (3, 5), padding=(2, 3), dilation=(2, 1), groups=2),
        nn.Conv2d(6, 16, 7, stride=2, padding=3),
        nn.Conv2d(6, 4, 13, padding=6),
        nn.Conv2d(6, 18, 1, groups=2),
    )
    check_all_forms(model, torch.randn(2, 6, 13, 19), **SUMS)


def test_depthwise():
    model = Several(
        nn.Conv2d(6, 6, 3, padding=1, groups=6),
        nn.Sequential(nn.Conv2d(6, 12, 5, stride=2, padding=2, groups=6), nn.ReLU6()),
        nn.Conv2d(6, 6, 3, stride=2, padding=1, groups=6, bias=False),
        nn.Conv2d(6, 6, (1, 7), groups=6),
    )
    check_all_forms(model, torch.randn(1, 6, 14, 20), **SUMS)


def test_pictures_that_are_one_pixel_wide():
    """On CPU adapters lines: four neighbours are computed together."""
    model = Several(
        nn.Conv2d(4, 9, (8, 1), stride=(4, 1), padding=(3, 0)),
        nn.Conv2d(4, 4, (3, 1), padding=(1, 0), groups=4),
        nn.ConvTranspose2d(4, 5, (4, 1), stride=(2, 1), padding=(1, 0)),
        nn.Conv2d(4, 6, 1),
        nn.Conv2d(4, 6, 3, padding=1),
    )
    program = check_all_forms(model, torch.randn(2, 4, 41, 1), **SUMS)
    graph = serialize.read(program.delegates[0][1])
    caps = replace(AOT_CAPS, is_cpu=True)
    grid = Planner(graph, caps).upper_bound().dispatches[0].groups
    # 2 images x 11 pixels in quads x 9 filters in blocks of 8, in workgroups of 32.
    assert grid == (1, 1, 1)


def test_depthwise_columns():
    """Each way in which rows enter the window, and columns of several parts."""
    model = Several(
        nn.Conv2d(3, 3, 3, padding=2, groups=3),
        nn.Conv2d(3, 9, (5, 3), padding=(2, 1), groups=3),
        nn.Conv2d(3, 3, 3, stride=3, groups=3),
        nn.Conv2d(3, 3, (2, 3), stride=(3, 2), padding=1, groups=3),
        nn.Conv2d(3, 6, (4, 3), stride=(3, 1), dilation=(1, 2), groups=3),
        nn.Conv2d(3, 3, (3, 2), dilation=(2, 1), groups=3),
        nn.Conv2d(3, 3, 7, stride=2, padding=3, groups=3),
    )
    check_all_forms(model, torch.randn(2, 3, 41, 11), **SUMS)
    volume = Several(
        nn.Conv3d(2, 4, (1, 3, 3), padding=(0, 1, 1), groups=2),
        nn.Conv3d(2, 2, (1, 3, 3), stride=(2, 1, 1), groups=2),
        nn.Conv3d(2, 2, 3, padding=1, groups=2),
    )
    check_all_forms(volume, torch.randn(1, 2, 5, 9, 12), **SUMS)


def test_transposed():
    model = Several(
        nn.ConvTranspose2d(6, 5, 3, stride=2, padding=1, output_padding=1),
        nn.Sequential(nn.ConvTranspose2d(6, 8, 2, stride=2), nn.ReLU()),
        nn.ConvTranspose2d(6, 8, 4, stride=2, padding=1, groups=2, bias=False),
        nn.ConvTranspose2d(6, 4, 3, padding=1),
        nn.ConvTranspose2d(6, 4, 3, stride=2, dilation=2),
        nn.ConvTranspose2d(6, 4, 2, stride=3),
    )
    check_all_forms(model, torch.randn(2, 6, 5, 7), **SUMS)


def test_one_and_three_dimensions():
    line = Several(
        nn.Conv1d(4, 9, 3, padding=1),
        nn.Conv1d(4, 8, 16, stride=4),
        nn.ConvTranspose1d(4, 3, 4, stride=2, padding=1),
    )
    check_all_forms(line, torch.randn(2, 4, 37), **SUMS)
    volume = Several(
        nn.Conv3d(3, 5, 3, padding=1),
        nn.Conv3d(3, 6, (2, 3, 1), stride=(1, 2, 1), groups=3),
        nn.ConvTranspose3d(3, 4, 2, stride=2),
    )
    check_all_forms(volume, torch.randn(1, 3, 5, 7, 8), **SUMS)


def test_weights_that_are_no_constants_and_inputs_that_are_views():
    def run(x, w):
        return (
            F.conv2d(x, w, padding=1),
            F.conv2d(x.transpose(2, 3), w),
            F.conv2d(x[0, :, 1:], w),
            F.conv2d(x[:0], w),
            F.conv_transpose2d(x, w.transpose(0, 1), stride=2),
        )

    check_all_forms(run, torch.randn(2, 6, 8, 11), torch.randn(4, 6, 3, 3), **SUMS)


def test_padding_is_zero_and_nonfinite_pixels_stay_local():
    x = torch.randn(1, 4, 9, 9)
    x[0, 1, 4, 4], x[0, 2, 0, 0], x[0, 0, 8, 8] = (
        float("inf"),
        float("nan"),
        float("-inf"),
    )
    model = Several(
        nn.Conv2d(4, 6, 3, padding=1),
        nn.Conv2d(4, 4, 3, padding=1, groups=4),
        nn.Conv2d(4, 8, 1),
        nn.ConvTranspose2d(4, 3, 2, stride=2),
    )
    check_all_forms(model, x, **SUMS)


def test_half():
    model = Several(nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(8, 8, 1)).half()
    check_all_forms(model, torch.randn(1, 8, 7, 8).half())


def test_channels_last():
    model = nn.Conv2d(6, 10, 3, padding=1).to(memory_format=torch.channels_last)
    x = torch.randn(2, 6, 7, 9).to(memory_format=torch.channels_last)
    check_all_forms(model, x, **SUMS)


def test_what_follows_is_fused():
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(8, 8, 3, padding=1)

        def forward(self, x):
            return F.hardswish(self.conv(x) + x)

    program = check_all_forms(Block(), torch.randn(1, 8, 8, 8), **SUMS)
    assert len(labels(program)) == 1


def test_more_workgroups_than_one_grid_dimension_has():
    model = nn.Conv2d(1, 2, 3, padding=1)
    check_op(model, torch.randn(1, 1, 2049, 2051), **SUMS)


def test_dynamic_batch_height_and_width():
    model = Several(
        nn.Conv2d(3, 20, 3, stride=2, padding=1),
        nn.Conv2d(3, 8, 1),
        nn.Conv2d(3, 3, 3, padding=1, groups=3),
        nn.ConvTranspose2d(3, 4, 2, stride=2),
    )
    dims = {
        0: torch.export.Dim("batch", min=1, max=3),
        2: torch.export.Dim("height", min=4, max=37),
        3: torch.export.Dim("width", min=4, max=40),
    }
    sizes = [(3, 37, 40), (1, 8, 7), (2, 4, 4), (3, 37, 40)]
    first, *rest = [(torch.randn(n, 3, h, w),) for n, h, w in sizes]
    check_op(model, *first, dynamic_shapes=(dims,), others=rest, **SUMS)


def norm(kind: type[nn.Module], channels: int) -> nn.Module:
    made = kind(channels)
    for values in (made.running_mean, made.weight.data, made.bias.data):
        values.uniform_(-1, 1)
    made.running_var.uniform_(0.5, 2)
    return made


def test_batch_norm_is_folded_into_what_it_follows():
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        norm(nn.BatchNorm2d, 8),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 12, 2, groups=2),
        norm(nn.BatchNorm2d, 12),
        nn.Flatten(),
        nn.Linear(12 * 64, 7),
        norm(nn.BatchNorm1d, 7),
    )
    program = check_op(layers, torch.randn(2, 3, 9, 9), **SUMS)
    assert sorted(set(labels(program))) == [
        "aten.convolution.default",
        "aten.linear.default",
    ]
    assert len(labels(program)) == 3


def test_batch_norm_stays_where_the_layer_is_used_twice():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 1), norm(nn.BatchNorm2d, 4)

        def forward(self, x):
            y = self.conv(x)
            return self.norm(y), y

    check_op(Model(), torch.randn(1, 3, 4, 4), **SUMS)
