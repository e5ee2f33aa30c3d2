"""Sounds of one channel at 16 kHz, to and from .wav files of 16 bits."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import torch

RATE = 16000


def write_wav(sound: torch.Tensor, path: Path) -> torch.Tensor:
    """Writes a sound in [-1, 1]; gives what a reader of the file gets."""
    samples = (sound * 32767).round().clamp(-32768, 32767).to(torch.int16)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.numpy().astype("<i2").tobytes())
    return read_wav(path)


def read_wav(path: Path) -> torch.Tensor:
    """As browsers decode it: 32768 is 1."""
    with wave.open(str(path)) as file:
        data = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return torch.from_numpy(data.astype(np.float32) / 32768)
