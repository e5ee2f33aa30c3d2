"""Recurrent layers: torch unrolls them, and all their ops must run on the GPU."""

from __future__ import annotations

import pytest
import torch
from harness import check_op
from torch import nn


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.rnn = (
            nn.LSTMCell(4, 5),
            nn.GRUCell(4, 5),
            nn.RNNCell(4, 5),
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (*self.lstm(x), self.gru(x), self.rnn(x))


def test_cells() -> None:
    check_op(Cells(), torch.randn(3, 4))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_two_directions(kind: type[nn.RNNBase]) -> None:
    layer = kind(4, 5, batch_first=True, bidirectional=True)
    check_op(layer, torch.randn(2, 3, 4))


def test_two_layers_with_state() -> None:
    state = (torch.randn(2, 2, 5), torch.randn(2, 2, 5))
    check_op(nn.LSTM(4, 5, 2), torch.randn(3, 2, 4), state)
