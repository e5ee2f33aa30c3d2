"""PT2E: linear networks by both quantizers, against the converted model itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from executorch.backends.vulkan.quantizer import vulkan_quantizer
from executorch.backends.xnnpack.quantizer import xnnpack_quantizer
from harness import lower
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from executorch_webgpu.ir import serialize


class Network(nn.Module):
    """Odd widths, a bias, an activation and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(28, 33)
        self.second = nn.Linear(33, 28, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(torch.relu(self.first(x)))


class _Converted(nn.Module):
    """Converted graph modules refuse eval(), which they do not need."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.__dict__["model"] = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)


def vulkan(**options: Any) -> Any:
    config = vulkan_quantizer.get_symmetric_quantization_config(**options)
    return vulkan_quantizer.VulkanQuantizer().set_global(config)


def xnnpack(**options: Any) -> Any:
    config = xnnpack_quantizer.get_symmetric_quantization_config(**options)
    return xnnpack_quantizer.XNNPACKQuantizer().set_global(config)


QUANTIZERS = {
    "Vulkan, 8-bit weights": lambda: vulkan(),
    "Vulkan, 4-bit weights": lambda: vulkan(weight_bits=4),
    "Vulkan, dynamic": lambda: vulkan(is_dynamic=True),
    "XNNPACK, static": lambda: xnnpack(is_per_channel=True),
    "XNNPACK, dynamic": lambda: xnnpack(is_per_channel=True, is_dynamic=True),
}


@pytest.mark.parametrize("name", QUANTIZERS)
def test_the_network_is_delegated_and_keeps_its_accuracy(name: str) -> None:
    torch.manual_seed(0)
    plain = Network().eval()
    rows = torch.export.Dim("rows", min=1, max=9)
    inputs = [torch.randn(n, 28) for n in (5, 9, 1, 9)]
    graph = torch.export.export(plain, (inputs[0],), dynamic_shapes=({0: rows},))
    prepared = prepare_pt2e(graph.module(), QUANTIZERS[name]())
    for x in inputs:
        prepared(x)
    model = _Converted(convert_pt2e(prepared))
    program = lower(model, (inputs[0],), ({0: rows},))
    assert program.report.complete, str(program.report)
    ((_, blob),) = program.delegates
    calls = [call.op for call in serialize.read(blob).calls]
    kind = "codes" if name == "XNNPACK, static" else "packed"
    assert calls.count(f"webgpu.linear_{kind}") == 2, calls
    # Quantizing the input, and a launch for each layer and what follows it.
    assert kind == "packed" or len(calls) == 3, calls
    for x in inputs:
        expected, result = model(x), program(x)[0]
        # A rounding of an activation may fall on the other side: one step of it.
        steps = 0.02 if "weights" not in name else 1e-5
        torch.testing.assert_close(result, expected, rtol=0, atol=steps)
        largest = float(plain(x).abs().max())
        loss = 0.2 if "4-bit" in name else 0.03
        assert float((result - plain(x)).abs().max()) < loss * largest
