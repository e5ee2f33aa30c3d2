"""torchvision's and torchaudio's models on a torch that they were not built for.

Both lie in .venv/vision. Their compiled parts are for other builds of torch:
torchvision asks for two ops of its own, which are declared here and never called;
torchaudio does without (set-up leaves it out).
"""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from types import ModuleType

import torch

_PATH = str(Path(__file__).parent.parent / ".venv" / "vision")


@functools.cache
def _declared() -> torch.library.Library:
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def load(name: str) -> ModuleType:
    """The module; not importable by name alone, or transformers would try it too."""
    _declared()
    sys.path.append(_PATH)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(_PATH)
