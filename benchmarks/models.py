"""The models of the cases: random weights, the same in every process."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

ROOT = Path(__file__).resolve().parent.parent


class PlusOne(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Matmul(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


def vision(name: str) -> nn.Module:
    """A model of torchvision, which has no build for a torch without CUDA.

    Its import only wants two operators to exist; no model here calls them.
    """
    path = str(ROOT / ".venv" / "vision")
    if path not in sys.path:
        library = torch.library.Library("torchvision", "DEF")
        for op in ("nms", "qnms"):
            library.define(
                f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        _kept.append(library)
        sys.path.append(path)
    import torchvision

    model: nn.Module = getattr(torchvision.models, name)(weights=None)
    return model


# A library takes its operators with it when it goes.
_kept: list[torch.library.Library] = []


def _example(name: str) -> Any:
    path = str(ROOT / "examples")
    if path not in sys.path:
        sys.path.append(path)
    return importlib.import_module(name)


def embedder() -> nn.Module:
    """all-MiniLM-L6-v2 with its published weights, from the demo."""
    model: nn.Module = _example("models").SentenceEmbedder()
    return model


def smollm(context: int) -> Any:
    """SmolLM2-135M with its published 4-bit weights and its caches as state."""
    weights = _example("chat").find_weights()
    model, _ = _example("llama").load(weights, context)
    return model


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return x * scale * self.weight


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding; the halves of a head are its pairs."""
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class DecoderLayer(nn.Module):
    """Attention and a gated MLP, as in a Llama."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.attention_norm, self.mlp_norm = RmsNorm(width), RmsNorm(width)
        self.q, self.k, self.v, self.o = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        keys: torch.Tensor | None,
        values: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        batch, length, width = x.shape
        h = self.attention_norm(x)
        split = (batch, length, self.heads, self.size)
        q = rotate(self.q(h).view(split).transpose(1, 2), cos, sin)
        k = rotate(self.k(h).view(split).transpose(1, 2), cos, sin)
        v = self.v(h).view(split).transpose(1, 2)
        if keys is None or values is None:
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            a = F.scaled_dot_product_attention(
                q, torch.cat((keys, k), 2), torch.cat((values, v), 2)
            )
        x = x + self.o(a.transpose(1, 2).reshape(batch, length, width))
        h = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), k, v


class Decoder(nn.Module):
    """Logits of the last token, and each layer's new keys and values.

    With `caches` (the past of every layer, as inputs) it decodes one token, without
    them it is a prefill. State is passed in and out, because that is the only
    way all peers know.
    """

    def __init__(
        self,
        layers: int = 4,
        width: int = 512,
        heads: int = 8,
        hidden: int = 1408,
        words: int = 4096,
        positions: int = 512,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.ModuleList(
            DecoderLayer(width, heads, hidden) for _ in range(layers)
        )
        self.norm = RmsNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        size = width // heads
        rates = 10000.0 ** (-torch.arange(0, size, 2) / size)
        angles = torch.arange(positions)[:, None] * rates[None]
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids: torch.Tensor, *caches: torch.Tensor) -> list[torch.Tensor]:
        past = caches[0].shape[2] if caches else 0
        length = ids.shape[1]
        cos, sin = self.cos[past : past + length], self.sin[past : past + length]
        x = self.embedding(ids)
        made = []
        for number, layer in enumerate(self.layers):
            pair = caches[2 * number : 2 * number + 2] if caches else (None, None)
            x, k, v = layer(x, cos, sin, *pair)
            made += [k, v]
        return [self.head(self.norm(x[:, -1])), *made]


class Encoder(nn.Module):
    """Plain encoder layers, for the table of time against layers and length."""

    def __init__(self, layers: int, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, 0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x
