"""U2-Netp: a photograph in, the probability of foreground of each pixel out.

A U-Net whose blocks are U-Nets (RSU). The published file has batch norm folded
into the convolutions, so a block is convolution and ReLU.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .files import onnx_convolutions, package_file


def conv(inputs: int, outputs: int, dilation: int = 1) -> nn.Module:
    layer = nn.Conv2d(inputs, outputs, 3, padding=dilation, dilation=dilation)
    return nn.Sequential(layer, nn.ReLU())


def pool(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(x, 2, stride=2, ceil_mode=True)


def resize_like(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, other.shape[2:], mode="bilinear", align_corners=False)


class Block(nn.Module):
    """An RSU block of `depth` levels; a `dilated` one does not pool."""

    def __init__(self, inputs: int, depth: int, dilated: bool = False) -> None:
        super().__init__()
        rates = [2**level if dilated else 1 for level in range(depth - 1)]
        bottom = 2 ** (depth - 1) if dilated else 2
        self.dilated = dilated
        self.entry = conv(inputs, 64)
        self.down = nn.ModuleList(
            conv(64 if level == 0 else 16, 16, rate) for level, rate in enumerate(rates)
        )
        self.bottom = conv(16, 16, bottom)
        self.up = nn.ModuleList(
            conv(32, 16 if level else 64, rates[level])
            for level in reversed(range(depth - 1))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        entry = x = self.entry(x)
        levels = []
        for index, layer in enumerate(self.down):
            x = layer(pool(x) if index and not self.dilated else x)
            levels.append(x)
        x = self.bottom(x)
        for layer, level in zip(self.up, reversed(levels)):
            x = x if self.dilated else resize_like(x, level)
            x = layer(torch.cat([x, level], 1))
        return x + entry


class U2Netp(nn.Module):
    """Takes [N, 3, H, W], gives [N, 1, H, W]."""

    def __init__(self) -> None:
        super().__init__()
        depths = (7, 6, 5, 4)
        self.down = nn.ModuleList(
            Block(64 if i else 3, d) for i, d in enumerate(depths)
        )
        self.down.extend([Block(64, 4, dilated=True), Block(64, 4, dilated=True)])
        self.up = nn.ModuleList([Block(128, 4, dilated=True)])
        self.up.extend(Block(128, depth) for depth in reversed(depths))
        self.sides = nn.ModuleList(nn.Conv2d(64, 1, 3, padding=1) for _ in range(6))
        self.mix = nn.Conv2d(6, 1, 1)
        weights = onnx_convolutions(package_file("rembg", "u2netp.onnx"))
        layers = [layer for layer in self.modules() if isinstance(layer, nn.Conv2d)]
        for layer, (weight, bias) in zip(layers, weights, strict=True):
            assert layer.weight.shape == weight.shape
            layer.weight.data, layer.bias.data = weight, bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = []
        for index, block in enumerate(self.down):
            x = block(pool(x) if index else x)
            levels.append(x)
        decoded = [x]
        for block, level in zip(self.up, reversed(levels[:-1])):
            x = block(torch.cat([resize_like(x, level), level], 1))
            decoded.append(x)
        sides = [side(x) for side, x in zip(self.sides, reversed(decoded))]
        masks = [
            resize_like(side, sides[0]) if i else side for i, side in enumerate(sides)
        ]
        return torch.sigmoid(self.mix(torch.cat(masks, 1)))


def preprocess(pixels: torch.Tensor) -> torch.Tensor:
    """[3, H, W] in [0, 255] as the network wants it."""
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    deviation = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    return ((pixels / pixels.max() - mean) / deviation).unsqueeze(0)
