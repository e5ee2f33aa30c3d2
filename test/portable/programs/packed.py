"""Weights that kernels read in other layouts, or other types, than the program has."""

from __future__ import annotations

from typing import Any

import executorch.backends.vulkan.custom_ops_lib  # noqa: F401
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from test_dynamic import Of
from torch import nn
from torch.export import Dim
from torchao.quantization.pt2e import allow_exported_model_train_eval
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from .case import Case, Inputs, Programs, named

VK = torch.ops.et_vk
Q = torch.ops.quantized_decomposed


def codes(*shape: int) -> torch.Tensor:
    return torch.randint(-127, 128, shape).to(torch.int8)


def nibbles(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8)


def scales(*shape: int) -> torch.Tensor:
    return torch.rand(shape) * 0.01 + 0.001


class Network(nn.Module):
    """Convolutions whose filters are words of four channels, in strips and in columns,
    and floats."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 48, 3, stride=2, padding=1)
        self.plain = nn.Conv2d(48, 40, 3, padding=1)
        self.point = nn.Conv2d(40, 144, 1)
        self.depth = nn.Conv2d(144, 144, 3, padding=1, groups=144)
        self.grouped = nn.Conv2d(144, 24, 3, groups=2)
        self.last = nn.Linear(24, 70)

    def forward(self, x: torch.Tensor) -> Any:
        x = torch.relu(self.plain(torch.relu(self.first(x))))
        x = torch.relu(self.depth(torch.relu(self.point(x))))
        return self.last(torch.relu(self.grouped(x)).mean((2, 3)))


def int8_network() -> Case:
    """In PT2E's static int8, at sizes for which kernels differ."""
    height = Dim("height", min=4, max=24)
    shapes = {"x": {2: 2 * height}}
    steps = [(torch.randn(1, 3, 2 * n, 12),) for n in (9, 4, 24, 16)]
    config = get_symmetric_quantization_config(is_per_channel=True)
    with torch.no_grad():
        model = Network().eval()
        graph = torch.export.export(model, steps[0], dynamic_shapes=shapes).module()
        prepared = prepare_pt2e(graph, XNNPACKQuantizer().set_global(config))
        for step in steps:
            prepared(*step)
        converted = allow_exported_model_train_eval(convert_pt2e(prepared))
    # A value between two integers may become either, which later layers see.
    return Case(converted, steps, shapes=({2: 2 * height},), has_eager=False)


def q8ta_layers() -> Case:
    """As the Vulkan backend's quantizer stores them, rows and filters padded."""

    def forward(m: Any, x: torch.Tensor, flat: torch.Tensor) -> Any:
        given = (m.sums, m.scales, 0.2, -4, m.bias)
        every = ([1, 1], [1, 1], [1, 1])
        turned = ([2, 2], [0, 0], [0, 0], [1, 1], 1, "relu")
        return (
            VK.q8ta_conv2d(x, 0.05, 3, m.conv, *given, [3, 3], *every, 1, "relu"),
            VK.q8ta_conv2d_dw(x, 0.05, 3, m.depth, *given, [5, 5], *every, 54, "none"),
            VK.q8ta_conv2d_transposed(x, 0.05, 1, m.turned, *given, [2, 2], *turned),
            VK.q8ta_linear(flat, 0.03, 2, m.line, *given[:-1], m.bias, "relu"),
        )

    model = Of(
        forward,
        conv=torch.cat((codes(54, 486), torch.zeros(54, 2).to(torch.int8)), 1),
        depth=codes(5, 5, 54),
        turned=codes(54, 216),
        line=codes(54, 130),
        sums=torch.zeros(54).int(),
        scales=scales(54),
        bias=torch.randn(54),
    )
    return Case(model, [(codes(1, 54, 9, 8), codes(3, 130))], has_eager=False)


def codes_of_four_bits() -> Case:
    """Two to a byte, as others order them, with scales for groups."""

    def forward(m: Any, x: torch.Tensor, ids: torch.Tensor) -> Any:
        return (
            VK.linear_q4gsw(x, m.rows, m.by_group, 32),
            VK.linear_qcs4w(x, m.plain, m.each),
            VK.embedding_q4gsw(m.rows, m.by_row, 32, ids, True),
            Q.embedding_4bit(m.table, m.by_row, None, -8, 7, ids),
            Q.embedding_byte(m.bytes, m.by_row, None, -128, 127, ids),
        )

    model = Of(
        forward,
        rows=nibbles(70, 64),
        plain=nibbles(70, 64).to(torch.int8),
        table=nibbles(70, 64),
        bytes=codes(70, 128),
        by_group=scales(4, 70),
        by_row=scales(70, 4),
        each=scales(70),
    )
    ids = torch.tensor([[69, 0, 31]])
    return Case(model, [(torch.randn(3, 128), ids)], rtol=1e-3, atol=1e-3)


def transposed(dtype: torch.dtype) -> Case:
    """Of which every phase has filters of its own."""
    size = Dim("size", min=3, max=12)
    model = nn.Sequential(
        *(nn.ConvTranspose2d(24, 20, 4, stride=2, padding=1), nn.GELU()),
        nn.ConvTranspose2d(20, 24, 3, stride=1, padding=1),
    )

    def inputs(n: int) -> Inputs:
        return (torch.randn(1, 24, n, 6).to(dtype),)

    steps = [inputs(n) for n in (5, 3, 12)]
    limits = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.float16 else {"atol": 1e-4}
    return Case(model.to(dtype), steps, shapes=({2: size},), **limits)


def transposed_floats() -> Case:
    return transposed(torch.float32)


def transposed_halves() -> Case:
    return transposed(torch.float16)


PROGRAMS: Programs = {
    **named(int8_network, q8ta_layers, codes_of_four_bits),
    **named(transposed_floats, transposed_halves),
}
