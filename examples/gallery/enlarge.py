"""Real-ESRGAN animevideov3: a picture in, one of four times the width and height out.

A large picture goes through in tiles; near its edge a tile has seen less of the
picture, so tiles overlap by twice BORDER. Sides of tiles are multiples of STEP: any
width with any height would need more plans than a file may carry.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from published.upscaler import Upscaler

from . import pictures
from .shared import PROGRAM, Loaded, Page, export, port, size

STEP, LEAST, MOST, BORDER, TIMES = 16, 16, 128, 10, 4
IMAGE = {"scale": 1 / 255, "layout": "nchw", "channels": "rgb"}


def _shapes() -> Any:
    most = {"min": LEAST // STEP, "max": MOST // STEP}
    rows, columns = (torch.export.Dim(name, **most) for name in ("rows", "columns"))
    return ({2: STEP * rows, 3: STEP * columns},)


def make(folder: Path) -> Page:
    model = Upscaler().eval()
    example = (torch.zeros(1, 3, 48, 64),)
    (folder / PROGRAM).write_bytes(export({"forward": (model, example, _shapes())}))
    run = Loaded(folder / PROGRAM)
    image = pictures.photograph("coffee.png").crop((190, 80, 446, 272))
    image = image.resize((64, 48), Image.Resampling.BILINEAR)
    pictures.save(image, folder / "coffee.png")
    inputs = pictures.numbers(image, IMAGE)
    (large,) = run(inputs)
    pictures.save(pictures.to_picture(large), folder / "coffee_enlarged.png")
    expected = {
        "coffee.png": {
            "input": pictures.statistics(inputs),
            "output": pictures.statistics(large),
            "picture": "coffee_enlarged.png",
        }
    }
    height, width = (size(n, LEAST, MOST, STEP) for n in ("height", "width"))
    high, wide = (
        size(f"{TIMES} * {name}", TIMES * LEAST, TIMES * MOST, TIMES * STEP)
        for name in ("height", "width")
    )
    methods = {
        "forward": {
            "inputs": [
                port(
                    "picture",
                    "float32",
                    [1, 3, height, width],
                    "a picture or a tile of one",
                    image=IMAGE,
                    tile={
                        "size": MOST,
                        "step": STEP,
                        "border": BORDER,
                        "times": TIMES,
                    },
                )
            ],
            "outputs": [
                port(
                    "enlarged",
                    "float32",
                    [1, 3, high, wide],
                    "in 0 to 1, and a little beyond",
                    image={"scale": 255},
                )
            ],
        }
    }
    return Page(methods, expected)


def onnx() -> tuple[Any, tuple[Any, ...], Any]:
    return Upscaler().eval(), (torch.zeros(1, 3, 48, 64),), _shapes()
