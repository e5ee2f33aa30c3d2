"""Static int8: the q8ta ops and PT2E-quantized networks, against torch."""

from __future__ import annotations

import executorch.backends.vulkan.custom_ops_lib  # noqa: F401
import pytest
import torch
from accuracy import STEPS
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from forms import run_other
from harness import lower
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from executorch_webgpu.ir import serialize

VK = torch.ops.et_vk


def codes(*shape: int) -> torch.Tensor:
    return torch.randint(-127, 128, shape).to(torch.int8)


class Ops(nn.Module):
    """Odd sizes, groups, strides, padding and activations of every q8ta op."""

    def __init__(self) -> None:
        super().__init__()
        for name, value in {
            "conv": codes(6, 27),
            "grouped": codes(6, 18),
            "depth": codes(3, 3, 5),
            "turned": codes(4, 20),
            "line": codes(7, 13),
            "sums": torch.zeros(8).int(),
            "rows": torch.rand(7) * 0.01 + 0.001,
            "scales": torch.rand(8) * 0.01 + 0.001,
            "bias": torch.randn(8),
        }.items():
            self.register_buffer(name, value)

    def forward(self, a, b, d, x, f):
        s, n, c = self.scales, self.bias, self.sums
        geometry = ([2, 1], [1, 1], [1, 1])
        return (
            VK.q8ta_conv2d(
                a,
                0.05,
                3,
                self.conv,
                c[:6],
                s[:6],
                0.2,
                -4,
                n[:6],
                [3, 3],
                *geometry,
                1,
                "relu",
            ),
            VK.q8ta_conv2d(
                b,
                0.05,
                3,
                self.grouped,
                c[:6],
                s[:6],
                0.2,
                -4,
                None,
                [3, 3],
                *geometry,
                2,
                "none",
            ),
            VK.q8ta_conv2d_dw(
                d,
                0.05,
                -3,
                self.depth,
                c[:5],
                s[:5],
                0.1,
                4,
                n[:5],
                [3, 3],
                *geometry,
                5,
                "none",
            ),
            VK.q8ta_conv2d_transposed(
                x,
                0.05,
                1,
                self.turned,
                c[:4],
                s[:4],
                0.2,
                0,
                n[:4],
                [2, 2],
                [2, 2],
                [0, 0],
                [0, 0],
                [1, 1],
                1,
                "relu",
            ),
            VK.q8ta_linear(
                f, 0.03, 2, self.line, c[:7], self.rows, 0.1, 5, n[:7], "relu"
            ),
            VK.q8ta_linear_gemv(f[:1], 0.03, 2, self.line, c[:7], self.rows, 0.1, 5),
            VK.q8ta_add(a, a.flip(0), 0.05, 3, 0.1, -2, 0.2, 1, 1.0),
            VK.q8ta_relu(a, 0.05, 3, 0.07, -9),
            VK.q8ta_pixel_shuffle(b, 0.05, 1, 1 / 0.07, -3, 2),
        )


def close_in_steps(results, expected) -> None:
    """Equal but for a rounding that fell on the other side, which is one step."""
    for result, wanted in zip(results, expected, strict=True):
        assert result.shape == wanted.shape
        assert result.dtype == wanted.dtype
        gap = (result.int() - wanted.int()).abs()
        assert int(gap.max()) <= 1
        assert float((gap > 0).float().mean()) < STEPS


def test_q8ta_ops() -> None:
    inputs = (
        codes(2, 3, 7, 5),
        codes(1, 4, 7, 5),
        codes(2, 5, 7, 9),
        codes(1, 5, 3, 4),
        codes(3, 13),
    )
    model = Ops().eval()
    program = lower(model, inputs)
    assert program.report.complete, str(program.report)
    close_in_steps(program(*inputs), model(*inputs))
    close_in_steps(run_other(program, *inputs), model(*inputs))


class Network(nn.Module):
    """Convolutions of every kind, a residual, pooling and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.depth = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.point = nn.Conv2d(8, 8, 1)
        self.grouped = nn.Conv2d(8, 6, 3, groups=2)
        self.last = nn.Linear(6, 5)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = x + self.point(torch.relu(self.depth(x)))
        return self.last(torch.relu(self.grouped(x)).mean((2, 3)))


@pytest.mark.parametrize("per_channel", [False, True])
def test_pt2e_network_is_delegated(per_channel: bool) -> None:
    torch.manual_seed(0)
    example = (torch.randn(2, 3, 15, 13),)
    quantizer = XNNPACKQuantizer().set_global(
        get_symmetric_quantization_config(is_per_channel=per_channel)
    )
    prepared = prepare_pt2e(
        torch.export.export(Network().eval(), example).module(), quantizer
    )
    for _ in range(3):
        prepared(torch.randn(2, 3, 15, 13))
    model = convert_pt2e(prepared)
    program = lower(_Plain(model), example)
    assert program.report.complete, str(program.report)
    ((_, blob),) = program.delegates
    calls = [call.op for call in serialize.read(blob).calls]
    # Every layer multiplies codes, and no weight becomes float in every call.
    assert calls.count("webgpu.conv_codes") == 4, calls
    assert calls.count("webgpu.linear_codes") == 1, calls
    assert len(calls) == 7, calls
    expected = model(*example)
    # One step of the last quantization, where a rounding fell the other way.
    step = float(expected.abs().max()) / 64
    torch.testing.assert_close(program(*example)[0], expected, rtol=0, atol=step)


class _Plain(nn.Module):
    """Converted graph modules refuse eval(), which they do not need."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.__dict__["model"] = model

    def forward(self, *inputs):
        return self.model(*inputs)
