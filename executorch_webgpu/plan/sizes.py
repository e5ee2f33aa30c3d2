"""Which sizes of a graph's symbols are looked at, to see what plans must serve."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

# Sizes, or combinations of them: to see that all are served.
MOST = 1 << 17
# And where it is enough to know what is likely.
FEWER = 1 << 12


def tried(
    ranges: Mapping[str, tuple[int, int]], most: int = MOST
) -> dict[str, np.ndarray]:
    """All combinations of sizes, or, if they are too many, of some of each symbol."""
    if not ranges:
        return {}
    if math.prod(high - low + 1 for low, high in ranges.values()) > most:
        most = int(most ** (1 / len(ranges)))
    each = [_sample(low, high, most) for low, high in ranges.values()]
    grid = np.meshgrid(*(np.array(one, np.int64) for one in each), indexing="ij")
    return {name: one.reshape(-1) for name, one in zip(ranges, grid)}


def _sample(low: int, high: int, most: int) -> list[int]:
    """Up to so many sizes: both ends, small ones, powers of two and their neighbours,
    and others, evenly."""
    if high - low < most:
        return list(range(low, high + 1))
    powers = [1 << n for n in range(3, high.bit_length())]
    near = [power + add for add in (0, 1, -1) for power in powers]
    even = [low + (high - low) * n // most for n in range(most)]
    wanted = dict.fromkeys([low, high, *range(low, low + 8), *near, *even])
    return sorted([size for size in wanted if low <= size <= high][:most])
