"""Models that the command line's tests name, each by a function without arguments."""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import Any

import torch
from torch import nn

CONTEXT, LONGEST, VOCABULARY = 24, 8, 13


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, 16)
        self.act = nn.Tanh()
        self.second = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.act(self.first(x)).relu())


def small() -> tuple[Any, ...]:
    length = torch.export.Dim("length", min=1, max=64)
    return Small(), (torch.randn(5, 8),), ({0: length},)


def wide() -> tuple[Any, ...]:
    """The inputs of `small`, and other outputs."""
    return nn.Linear(8, 5), (torch.randn(5, 8),)


class Several(nn.Module):
    """Results of several tensors, views, integers, infinities and an op on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.norm(self.conv(x)).relu()
        a, b = y.split(2, 1)
        values, indices = (a * b).flatten(1).topk(3)
        z = y.permute(0, 2, 3, 1)[:, ::2].sum((1, 2))
        return values, indices, z[:, ids].double(), z.where(z > 0, torch.inf)


def several() -> tuple[Any, ...]:
    return Several(), (torch.randn(1, 3, 6, 6), torch.tensor([0, 3]))


class Decoder(nn.Module):
    """A token's value is what it attends to; positions are those of all tokens, or that
    of the first."""

    def __init__(self, is_first: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.is_first = is_first
        self.table = nn.Embedding(VOCABULARY, 8)
        self.out = nn.Linear(8, VOCABULARY)
        self.register_buffer("cache", torch.zeros(CONTEXT, 8))
        self.register_buffer("mask", torch.ones(CONTEXT, CONTEXT).tril())

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        if self.is_first:
            positions = positions + torch.arange(tokens.shape[1])
        self.cache[positions] = self.table(tokens)[0]
        rows = self.mask[positions]
        mean = rows @ self.cache / rows.sum(1, keepdim=True)
        return self.out(mean).unsqueeze(0)


def decoder() -> tuple[Any, ...]:
    length = torch.export.Dim("length", min=1, max=LONGEST)
    example = (torch.zeros(1, 3, dtype=torch.long), torch.arange(3))
    return Decoder(False), example, ({1: length}, {0: length})


def first_decoder() -> tuple[Any, ...]:
    length = torch.export.Dim("length", min=1, max=LONGEST)
    example = (torch.zeros(1, 3, dtype=torch.long), torch.tensor([0]))
    return Decoder(True), example, ({1: length}, None)


def refusing() -> tuple[Any, ...]:
    raise ValueError("no weights here\nand more")


def ending() -> tuple[Any, ...]:
    """A model, but in another process the end of it."""
    if multiprocessing.parent_process() is not None:
        print("out of everything", file=sys.stderr, flush=True)
        os._exit(3)
    return small()


def nothing() -> None:
    """No model."""
