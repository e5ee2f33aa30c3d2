"""U2-Netp: a picture in, how much each of its pixels is foreground out.

The picture is square, with a side that the page chooses: a larger one gives finer
edges, a smaller one takes less time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from published.u2net import U2Netp

from . import pictures
from .shared import PROGRAM, Loaded, Page, export, port, size

STEP, LEAST, MOST = 32, 160, 320
IMAGE = {
    "width": MOST,
    "height": MOST,
    "fit": "stretch",
    "filter": "bilinear",
    "scale": 1 / 255,
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
    "layout": "nchw",
    "channels": "rgb",
}


def _shapes() -> Any:
    side = STEP * torch.export.Dim("units", min=LEAST // STEP, max=MOST // STEP)
    return ({2: side, 3: side},)


def make(folder: Path) -> Page:
    model = U2Netp().eval()
    example = (torch.zeros(1, 3, 192, 192),)
    (folder / PROGRAM).write_bytes(export({"forward": (model, example, _shapes())}))
    run = Loaded(folder / PROGRAM)
    image = pictures.photograph("astronaut.png")
    image = image.resize((384, 384), Image.Resampling.BILINEAR)
    pictures.save(image, folder / "astronaut.png")
    expected = {}
    for side in (LEAST, MOST):
        spec = {**IMAGE, "width": side, "height": side}
        inputs = pictures.numbers(pictures.fitted(image, spec), spec)
        (mask,) = run(inputs)
        expected[str(side)] = {
            "input": pictures.statistics(inputs),
            "mask": pictures.statistics(mask),
            "foreground": float((mask > 0.5).float().mean()),
        }
    side = size("side", LEAST, MOST, STEP)
    methods = {
        "forward": {
            "inputs": [
                port("picture", "float32", [1, 3, side, side], "a square", image=IMAGE)
            ],
            "outputs": [
                port(
                    "mask",
                    "float32",
                    [1, 1, side, side],
                    "0 for the background, 1 for the foreground",
                )
            ],
        }
    }
    return Page(methods, {"astronaut.png": expected})


def onnx() -> tuple[Any, tuple[Any, ...], Any]:
    return U2Netp().eval(), (torch.zeros(1, 3, 192, 192),), _shapes()
