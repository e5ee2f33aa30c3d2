"""EfficientNet-Lite0: a picture in, the chances of ImageNet's 1000 classes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import models
import torch
from torch import nn

from . import pictures
from .shared import PROGRAM, Loaded, Page, export, port

IMAGE = {
    "width": 224,
    "height": 224,
    "fit": "crop",
    "filter": "bilinear",
    "scale": 1.0,
    "mean": [127.0, 127.0, 127.0],
    "std": [128.0, 128.0, 128.0],
    "layout": "nchw",
    "channels": "rgb",
}
SAMPLES = {"cat.png": "chelsea.png", "coffee.png": "coffee.png"}


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scores = models.classifier()

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.scores(picture), 1)


def make(folder: Path) -> Page:
    labels = models.labels()
    (folder / "labels.txt").write_text("\n".join(labels) + "\n")
    model = Classifier().eval()
    example = (torch.zeros(1, 3, 224, 224),)
    (folder / PROGRAM).write_bytes(export({"forward": (model, example, None)}))
    run = Loaded(folder / PROGRAM)
    expected = {}
    for file, name in SAMPLES.items():
        image = pictures.photograph(name)
        pictures.save(image, folder / file)
        inputs = pictures.numbers(pictures.fitted(image, IMAGE), IMAGE)
        (chances,) = run(inputs)
        best = chances[0].topk(5)
        expected[file] = {
            "input": pictures.statistics(inputs),
            "top5": [
                {"index": int(index), "label": labels[index], "probability": float(p)}
                for p, index in zip(best.values, best.indices)
            ],
        }
    methods = {
        "forward": {
            "inputs": [
                port("picture", "float32", [1, 3, 224, 224], "a picture", image=IMAGE)
            ],
            "outputs": [
                port(
                    "probabilities",
                    "float32",
                    [1, 1000],
                    "of each class; their sum is 1",
                    labels="labels.txt",
                )
            ],
        }
    }
    return Page(methods, expected)


def onnx() -> tuple[Any, tuple[Any, ...], Any]:
    return Classifier().eval(), (torch.zeros(1, 3, 224, 224),), None
