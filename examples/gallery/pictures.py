"""Photographs to tensors, to the byte as web/src/image does it.

A spec is what model.json tells a page: `fit`, `width`, `height`, `filter`, `scale`,
`mean`, `std`, `layout` and `channels`, which is always rgb here.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from models import package_path
from PIL import Image


def photograph(name: str) -> Image.Image:
    """One of scikit-image's."""
    return Image.open(package_path("skimage") / "data" / name).convert("RGB")


def fitted(image: Image.Image, spec: dict[str, Any]) -> Image.Image:
    """The picture at the model's size: all of it, or with `crop` its middle."""
    width, height = spec["width"], spec["height"]
    if spec["fit"] == "stretch":
        return image.resize((width, height), Image.Resampling.BILINEAR)
    scale = max(width / image.width, height / image.height)
    # Halves up, as in JavaScript.
    w = max(width, math.floor(image.width * scale + 0.5))
    h = max(height, math.floor(image.height * scale + 0.5))
    image = image.resize((w, h), Image.Resampling.BILINEAR)
    left, top = round((w - width) / 2), round((h - height) / 2)
    return image.crop((left, top, left + width, top + height))


def numbers(image: Image.Image, spec: dict[str, Any]) -> torch.Tensor:
    """[1, 3, height, width]: (byte * scale - mean) / std."""
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).double()
    mean = torch.tensor(spec.get("mean", (0.0, 0.0, 0.0))).double()[:, None, None]
    std = torch.tensor(spec.get("std", (1.0, 1.0, 1.0))).double()[:, None, None]
    scaled = (pixels * spec["scale"] - mean) / std
    return scaled.float().unsqueeze(0).contiguous()


def to_picture(values: torch.Tensor) -> Image.Image:
    """[1, 3, height, width] in 0 to 1."""
    pixels = (values[0].permute(1, 2, 0) * 255).round().clamp(0, 255)
    return Image.fromarray(pixels.to(torch.uint8).numpy())


def save(image: Image.Image, path: Path) -> None:
    image.save(path, optimize=True)


def statistics(values: torch.Tensor) -> dict[str, Any]:
    """Numbers by which a tensor is known: all of it, and a grid of 4x4 means."""
    flat = values.double()
    grid = torch.nn.functional.adaptive_avg_pool2d(flat, 4).flatten()
    return {
        "dims": list(values.shape),
        "mean": float(flat.mean()),
        "deviation": float(flat.std()),
        "min": float(flat.min()),
        "max": float(flat.max()),
        "grid": [round(float(value), 6) for value in grid],
    }
