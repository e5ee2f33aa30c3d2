"""Embedding bags against eager."""

from __future__ import annotations

import pytest
import torch
from harness import check_op, lower


class Bags(torch.nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        self.bags = torch.nn.EmbeddingBag(10, 5, **options)

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.bags(*args)


INDICES, OFFSETS = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9]), torch.tensor([0, 3, 3])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode: str) -> None:
    check_op(Bags(mode=mode, padding_idx=4), INDICES, OFFSETS)


def test_weighted_bags() -> None:
    bags = Bags(mode="sum", include_last_offset=True)
    check_op(bags, INDICES, OFFSETS, torch.randn(8))


def test_an_index_out_of_range_is_an_error() -> None:
    program = lower(Bags(mode="sum"), (INDICES, OFFSETS))
    with pytest.raises(RuntimeError):
        program(INDICES + 5, OFFSETS)
