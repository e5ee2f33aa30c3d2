"""CREPE tiny: frames of 64 ms of sound in, the pitch of each in Hz out.

Frames are made to have mean 0 and deviation 1, and the 360 scores of the network
become a pitch, inside the program.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from published import crepe
from torch import nn

from .shared import PROGRAM, Loaded, Page, export, port, size
from .sounds import RATE, write_wav

FRAMES, HOP = 64, 512
NOTES = (220.0, 277.18, 329.63, 440.0, 659.26)  # Hz


class Pitch(nn.Module):
    """Frames [N, 1024] to pitches [N] and how sure the network is of each, 0 to 1."""

    def __init__(self) -> None:
        super().__init__()
        self.crepe = crepe.Crepe()

    def forward(self, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        centred = frames - frames.mean(1, keepdim=True)
        deviation = (centred.square().sum(1, keepdim=True) / (crepe.FRAME - 1)).sqrt()
        scores = self.crepe(centred / deviation.clamp(min=1e-10))
        return crepe.pitch(scores), scores.amax(1)


def melody() -> torch.Tensor:
    """Half a second of each note, with two overtones and soft ends."""
    time = torch.arange(RATE // 2, dtype=torch.float64) / RATE
    envelope = (time * 20).clamp(max=1) * ((0.5 - time) * 20).clamp(max=1)
    tones = []
    for note in NOTES:
        turns = 2 * math.pi * note * time
        tone = turns.sin() + 0.5 * (2 * turns).sin() + 0.25 * (3 * turns).sin()
        tones.append(0.4 * envelope * tone)
    return torch.cat(tones).float()


def make(folder: Path) -> Page:
    model = Pitch().eval()
    example = (torch.randn(7, crepe.FRAME),)
    shapes = ({0: torch.export.Dim("frames", min=1, max=FRAMES)},)
    (folder / PROGRAM).write_bytes(export({"forward": (model, example, shapes)}))
    run = Loaded(folder / PROGRAM)
    sound = write_wav(melody(), folder / "notes.wav")
    results = [run(f) for f in sound.unfold(0, crepe.FRAME, HOP).split(FRAMES)]
    hertz, sure = (torch.cat(parts).tolist() for parts in zip(*results))
    expected = {"notes.wav": {"notes": NOTES, "hertz": hertz, "confidence": sure}}
    frames = size("frames", 1, FRAMES)
    sound_spec = {"rate": RATE, "frame": crepe.FRAME, "hop": HOP, "normalize": False}
    methods = {
        "forward": {
            "inputs": [
                port(
                    "frames",
                    "float32",
                    [frames, crepe.FRAME],
                    "samples in -1 to 1, each frame of 64 ms",
                    sound=sound_spec,
                )
            ],
            "outputs": [
                port("hertz", "float32", [frames], "the pitch of each frame"),
                port("confidence", "float32", [frames], "0 to 1; voiced from 0.5 on"),
            ],
        }
    }
    return Page(methods, expected)


def onnx() -> tuple[Any, tuple[Any, ...], Any]:
    shapes = ({0: torch.export.Dim("frames", min=1, max=FRAMES)},)
    return Pitch().eval(), (torch.randn(7, crepe.FRAME),), shapes
