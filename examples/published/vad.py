"""Silero VAD: is somebody speaking in this 32 ms of sound at 16 kHz?"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .files import package_file

CHUNK = 512
CONTEXT = 64


class VoiceDetector(nn.Module):
    """One step: sound [N, CONTEXT + CHUNK] and the state; a probability and the
    next state."""

    def __init__(self) -> None:
        super().__init__()
        self.spectrum = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        widths = [(129, 128, 1), (128, 64, 2), (64, 64, 2), (64, 128, 1)]
        self.encoder = nn.ModuleList(
            nn.Conv1d(inputs, outputs, 3, stride=stride, padding=1)
            for inputs, outputs, stride in widths
        )
        self.cell = nn.LSTMCell(128, 128)
        self.score = nn.Conv1d(128, 1, 1)
        weights = list(published().state_dict().items())
        values = [v for name, v in weights if name.startswith("_model.")]
        for parameter, value in zip(self.parameters(), values, strict=True):
            assert parameter.shape == value.shape
            parameter.data = value

    def forward(
        self, sound: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = F.pad(sound.unsqueeze(1), (0, 64), mode="reflect")
        real, imaginary = self.spectrum(x).chunk(2, 1)
        x = torch.sqrt(real * real + imaginary * imaginary)
        for layer in self.encoder:
            x = F.relu(layer(x))
        hidden, cell = self.cell(x.squeeze(-1), (hidden, cell))
        scores = torch.sigmoid(self.score(F.relu(hidden.unsqueeze(-1))))
        return scores.mean((1, 2)), hidden, cell


def published() -> torch.jit.ScriptModule:
    """The model as its authors ship it."""
    return torch.jit.load(package_file("silero_vad", "data/silero_vad.jit"))


def windows(sound: torch.Tensor) -> torch.Tensor:
    """The steps' inputs [steps, CONTEXT + CHUNK] of a sound."""
    whole = sound[: len(sound) // CHUNK * CHUNK]
    return F.pad(whole, (CONTEXT, 0)).unfold(0, CONTEXT + CHUNK, CHUNK)
