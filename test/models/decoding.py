"""Greedy decoding, by whatever computes the logits."""

from __future__ import annotations

from typing import Any

import torch


def greedy(step: Any, prompt: list[int], count: int) -> list[int]:
    """The next `count` tokens; `step` takes tokens [1, S] and positions [S]."""
    made: list[int] = []
    tokens, position = prompt, 0
    with torch.no_grad():
        for _ in range(count):
            positions = torch.arange(position, position + len(tokens))
            logits = step(torch.tensor([tokens]), positions)
            position += len(tokens)
            tokens = [int(logits[0, -1].argmax())]
            made += tokens
    return made
