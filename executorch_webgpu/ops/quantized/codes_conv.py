"""A convolution of int8 tensors as its forms see it, and its filters as words."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...plan.host_packing import packing, unpacking
from ...plan.recorder import Tensor


@packing("filter_words")
def filter_words(data: np.ndarray) -> np.ndarray:
    """[filter, channel, y, x] as words [filter, (y, x), four channels]."""
    filters, channels = data.shape[:2]
    codes = data.reshape(filters, channels, -1)
    padded = np.zeros((filters, codes.shape[2], -(-channels // 4) * 4), np.int8)
    padded[:, :, :channels] = codes.transpose(0, 2, 1)
    return padded.view(np.int32).reshape(filters, -1)


@packing("filter_taps")
def _filter_taps(data: np.ndarray) -> np.ndarray:
    """[filter, channel, y, x] as words [filter, four channels, (y, x)]."""
    filters, channels = data.shape[:2]
    words = filter_words(data).reshape(filters, -1, -(-channels // 4))
    return np.ascontiguousarray(words.transpose(0, 2, 1))


@unpacking("filter_taps")
def _taps_of_words(words: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    filters, channels, *_ = shape
    fours = -(-channels // 4)
    codes = words.reshape(filters, fours, -1, 1).view(np.int8)
    taps = codes.transpose(0, 1, 3, 2).reshape(filters, fours * 4, -1)
    return taps[:, :channels]


@packing("filter_sums")
def _filter_sums(data: np.ndarray) -> np.ndarray:
    """The sum of each filter."""
    sums: np.ndarray = data.reshape(data.shape[0], -1).sum(1, dtype=np.int32)
    return sums


@dataclass(frozen=True)
class CodesConv:
    """x[n, c, ...] of int8, with constant filters[f, c / groups, ...] of int8."""

    x: Tensor
    scale: float
    zero: int
    filters: Tensor
    scales: Tensor
    bias: Tensor | None
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int

    @property
    def kernel(self) -> tuple[int, ...]:
        return self.filters.shape[2:]

    @property
    def channels(self) -> int:
        return self.filters.shape[1]

    @property
    def depth(self) -> int:
        """Elements of a filter, its channels padded to fours."""
        return -(-self.channels // 4) * 4 * math.prod(self.kernel)
