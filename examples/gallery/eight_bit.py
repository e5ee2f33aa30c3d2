"""Linear layers and embeddings with weights of 8 bits: a quarter of the download.

Every 32 weights of a row share a scale, which is a half; the largest of them is 127 of
its scales. What is computed with them stays in floats.
"""

from __future__ import annotations

import llama
import torch
import torch.nn.functional as F
from torch import nn

GROUP = 32


def quantized(weight: torch.Tensor) -> llama.QuantizedWeight:
    rows, columns = weight.shape
    groups = weight.float().reshape(rows, columns // GROUP, GROUP)
    scale = (groups.abs().amax(-1) / 127).clamp(min=1e-7).half()
    codes = (groups / scale.float().unsqueeze(-1)).round().clamp(-127, 127)
    codes = codes.to(torch.int8).reshape(rows, columns)
    return llama.QuantizedWeight(codes, scale, None, (-128, 127))


class Linear(nn.Module):
    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight = quantized(layer.weight)
        self.bias = layer.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight(), self.bias)


def quantize(module: nn.Module) -> nn.Module:
    """Puts `Linear` in place of every linear layer below a module."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, Linear(child))
        else:
            quantize(child)
    return module
