"""all-MiniLM-L6-v2: sentences in, one unit vector for each out.

The weights are halves, which a device without them computes as floats. The mean over
the tokens of a sentence and its length are taken by the program.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from models import SentenceEmbedder, embedder_shapes
from torch import nn

from .shared import PROGRAM, Loaded, Page, export, port, size

BATCH, LENGTH = 8, 128
SENTENCES = (
    "A cat is sleeping on the sofa.",
    "A kitten naps on the couch.",
    "The central bank raised interest rates again this year.",
    "How do I reset my password?",
    "I forgot my login and cannot get into my account.",
    "The recipe needs two eggs, flour and a little butter.",
    "Mix the dough and bake the cake for forty minutes.",
    "Our train to Berlin leaves from platform seven at noon.",
)
QUERIES = ("pets resting", "baking", "economy and money")


class Embedder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedder = SentenceEmbedder().half()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.embedder(ids, mask).float()


def make(folder: Path) -> Page:
    model = Embedder().eval()
    path = model.embedder.path / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    # A page pads to the longest sentence of a call, not to 128 tokens.
    tokenizer["padding"] = None
    text = json.dumps(tokenizer, ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    (folder / "sentences.txt").write_text("\n".join(SENTENCES) + "\n")
    example = model.embedder.tokenize(list(SENTENCES[:3]))
    shapes = embedder_shapes(BATCH, LENGTH)
    (folder / PROGRAM).write_bytes(export({"forward": (model, example, shapes)}))
    run = Loaded(folder / PROGRAM)
    (vectors,) = run(*model.embedder.tokenize(list(SENTENCES)))
    (queries,) = run(*model.embedder.tokenize(list(QUERIES)))
    ids, _ = model.embedder.tokenize([SENTENCES[0]])
    expected = {
        "sentences": list(SENTENCES),
        "ids": ids[0].tolist(),
        "similarities": (vectors @ vectors.T).tolist(),
        "queries": [
            {"text": text, "similarities": row.tolist(), "best": int(row.argmax())}
            for text, row in zip(QUERIES, queries @ vectors.T)
        ],
    }
    batch, length = size("batch", 1, BATCH), size("length", 1, LENGTH)
    methods = {
        "forward": {
            "inputs": [
                port("ids", "int64", [batch, length], "tokens, then the pad's id 0"),
                port("mask", "int64", [batch, length], "1 for a token, 0 for a pad"),
            ],
            "outputs": [
                port(
                    "vectors",
                    "float32",
                    [batch, 384],
                    "of length 1: the product of two is their similarity",
                )
            ],
        }
    }
    return Page(methods, expected, {"tokenizer": "tokenizer.json"})


def onnx() -> tuple[Any, tuple[Any, ...], Any]:
    model = SentenceEmbedder().eval()
    example = model.tokenize(list(SENTENCES[:3]))
    return model, example, embedder_shapes(BATCH, LENGTH)
