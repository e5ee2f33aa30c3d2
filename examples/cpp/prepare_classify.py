"""Writes what `classify` reads: python prepare_classify.py FOLDER

model.pte is EfficientNet-Lite0 with its plans, which run without Python; picture.ppm is
a photograph of a cat, labels.txt has the names of ImageNet's classes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from executorch.exir import to_edge_transform_and_lower
from PIL import Image

from executorch_webgpu import WebGPUPartitioner

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import models


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    example = (models.picture(),)
    exported = torch.export.export(models.classifier(), example)
    partitioner = WebGPUPartitioner(portable=True)
    program = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    (folder / "model.pte").write_bytes(program.to_executorch().buffer)
    photograph = models.package_path("skimage") / "data" / "chelsea.png"
    Image.open(photograph).convert("RGB").save(folder / "picture.ppm")
    (folder / "labels.txt").write_text("\n".join(models.labels()) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
