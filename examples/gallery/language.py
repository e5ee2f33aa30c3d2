"""What the language models share: the next token is found on the GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import llama
import torch
from torch import nn

from .shared import PROGRAM, Loaded, export, port, size

TOKENS = 64


class Greedy(nn.Module):
    """The scores of the next token, and which is the best, so that a page that wants
    no other reads a number instead of all scores."""

    def __init__(self, model: llama.Llama) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.model(tokens, positions)
        return logits, logits.argmax(-1)


def example(prompt: int) -> tuple[tuple[torch.Tensor, torch.Tensor], Any]:
    """Inputs to export with, and which of their sizes vary."""
    length = torch.export.Dim("length", min=1, max=prompt)
    inputs = torch.zeros(1, 3, dtype=torch.long), torch.arange(3)
    return inputs, ({1: length}, {0: length})


def write_program(
    folder: Path, model: llama.Llama, prompt: int, ends: list[int], begin: int
) -> Loaded:
    """For prompts of up to `prompt` tokens a call; loaded, as ExecuTorch runs it."""
    inputs, shapes = example(prompt)
    methods = {"forward": (Greedy(model), inputs, shapes)}
    program = export(methods, model.metadata(prompt, ends, begin))
    (folder / PROGRAM).write_bytes(program)
    return Loaded(folder / PROGRAM)


def greedy(run: Loaded, prompt: list[int], longest: int, ends: list[int]) -> list[int]:
    """Up to 64 tokens, from the start of the caches; the one that ends it is among
    them. A prompt goes in by parts of at most `longest`."""
    made: list[int] = []
    position = 0
    parts = [prompt[i : i + longest] for i in range(0, len(prompt), longest)]
    while len(made) < TOKENS and not (made and made[-1] in ends):
        for part in parts:
            positions = torch.arange(position, position + len(part))
            logits, token = run(torch.tensor([part]), positions)
            position += len(part)
        assert int(token) == int(logits.argmax())
        made.append(int(token))
        parts = [made[-1:]]
    return made


def methods(prompt: int, vocab: int) -> dict[str, Any]:
    length = size("length", 1, prompt)
    return {
        "forward": {
            "inputs": [
                port("tokens", "int64", [1, length], "a prompt, or the last token"),
                port("positions", "int64", [length], "of the tokens, from 0 on"),
            ],
            "outputs": [
                port("logits", "float32", [1, 1, vocab], "scores of the next token"),
                port("token", "int64", [1, 1], "the one with the best score"),
            ],
        }
    }
