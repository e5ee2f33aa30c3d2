"""Layers, with weights as kernels want them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from test_dynamic import Of
from torch import nn
from torch.export import Dim
from torch.nn import functional as F
from torchao.quantization import (
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    quantize_,
)
from torchao.quantization.granularity import PerAxis, PerGroup

from .case import Case, Fails, Programs, named


class Recipes(nn.Module):
    """One layer for each way of torchao to quantize weights."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(100, 64)
        self.int4 = nn.Linear(64, 36)
        self.rows = nn.Linear(64, 40, bias=False)
        self.dynamic = nn.Linear(64, 40, bias=False)
        self.int8 = nn.Linear(64, 13)
        self.eight = nn.Linear(64, 9)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.table(ids)
        layers = (self.int4, self.rows, self.dynamic, self.int8, self.eight)
        return (x, *(layer(x) for layer in layers))

    def quantized(self) -> Recipes:
        def only(*names: str) -> Callable[[nn.Module, str], bool]:
            return lambda module, path: path in names

        int4 = torch.int4
        quantize_(self, IntxWeightOnlyConfig(int4, PerGroup(32)), only("table", "int4"))
        quantize_(self, IntxWeightOnlyConfig(int4, PerAxis(0)), only("rows"))
        quantize_(self, IntxWeightOnlyConfig(torch.int8, PerAxis(0)), only("eight"))
        quantize_(self, Int8WeightOnlyConfig(), only("int8"))
        config = Int8DynamicActivationIntxWeightConfig(int4, PerGroup(32))
        quantize_(self, config, only("dynamic"))
        return self.eval()


def recipes() -> Case:
    steps = [(torch.randint(0, 100, (2, 7)),) for _ in range(2)]
    bad = Fails((torch.full((2, 7), 100),), "got 100")
    model = Recipes().quantized()
    return Case(model, [*steps, bad, steps[0]], rtol=1e-4, atol=1e-4)


def recipes_of_sizes() -> Case:
    length = Dim("length", min=1, max=13)
    steps = [(torch.randint(0, 100, (2, n)),) for n in (7, 13, 1, 2, 8, 9, 13)]
    limits = {"rtol": 1e-4, "atol": 1e-4}
    return Case(Recipes().quantized(), steps, shapes=({1: length},), **limits)


def halves() -> Case:
    """All constants are float16; sizes of one row and of several."""
    model = nn.Sequential(nn.Linear(64, 96), nn.SiLU()).half()
    size = Dim("size", min=1, max=24)
    steps = [(torch.randn(n, 64).half(),) for n in (5, 1, 2, 17, 24, 5)]
    limits = {"rtol": 1e-2, "atol": 1e-2}
    return Case(model, steps, shapes=({0: size},), **limits)


def half_codes() -> Case:
    """Weights of 8 bits under activations of float16."""
    model = nn.Sequential(nn.Linear(64, 40, dtype=torch.float16)).eval()
    quantize_(model, Int8WeightOnlyConfig())
    limits = {"rtol": 1e-2, "atol": 1e-2}
    return Case(model, [(torch.randn(3, 64).half(),)], **limits)


def layers() -> Case:
    """Weights that are transposed, joined and repeated for their kernels."""

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 10, 3, padding=1)
            self.deep = nn.ConvTranspose2d(10, 5, 2, stride=2)
            self.gate, self.up = (nn.Linear(24, 30, bias=False) for _ in "ab")
            self.norm = nn.LayerNorm(30)
            self.cell = nn.LSTM(30, 6, batch_first=True)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            gated = self.norm(F.silu(self.gate(y)) * self.up(y))
            return self.deep(self.conv(x).relu()), gated, self.cell(gated)[0]

    steps = [(torch.randn(1, 3, 8, 6), torch.randn(2, 4, 24)) for _ in range(2)]
    return Case(Layers().eval(), steps, atol=1e-4)


def one_weight_twice() -> Case:
    """The same data as it is, transposed, and as a table."""
    return Case(
        Of(
            lambda m, x, ids: (x @ m.w, x @ m.w.t(), m.w[ids], m.w.sum(0)),
            w=torch.randn(16, 16),
        ),
        [(torch.randn(3, 16), torch.tensor([15, 0]))],
        atol=1e-4,
    )


PROGRAMS: Programs = {
    **named(recipes, recipes_of_sizes, halves, half_codes, layers, one_weight_twice)
}
