"""Variants: a few plans that, together, serve every live shape of a graph.

Enters: a planner. Leaves: plans whose grids, parameters and shapes are expressions over
the graph's symbols, each with guards, the comparisons that decided what it consists
of. Where a variant's guards hold, its plan at some sizes is the one that the planner
would make for them, without planning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..errors import WebGPUError
from .planner import Planner
from .variant import Variant

# More variants than this say that something depends on a size that should not.
MOST_VARIANTS = 256


@dataclass(frozen=True)
class Refused:
    """Sizes for which there is no variant, and why."""

    sizes: Mapping[str, int]
    reason: str


@dataclass(frozen=True)
class Cover:
    """Variants, how many sizes were tried, and those that no variant serves."""

    variants: tuple[Variant, ...]
    tried: int
    refused: tuple[Refused, ...]


def cover(planner: Planner) -> Cover:
    """Variants for all that a graph accepts: every size of one symbol; of several,
    combinations of small, large and odd ones."""
    sizes = planner.sizes
    names = list(sizes)
    total = len(sizes[names[0]]) if names else 1
    left = np.ones(total, bool)
    found: list[Variant] = []
    refused: list[Refused] = []
    while left.any() and len(found) + len(refused) < MOST_VARIANTS:
        largest = int(np.flatnonzero(left)[-1])
        point = {name: int(sizes[name][largest]) for name in names}
        try:
            variant = planner.variant(point)
        except WebGPUError as error:
            refused.append(Refused(point, str(error)))
            left[largest] = False
            continue
        found.append(variant)
        left &= ~variant.covered(sizes) if names else False
    refused += (
        Refused({name: int(sizes[name][at]) for name in names}, "too many variants")
        for at in np.flatnonzero(left)
    )
    return Cover(tuple(found), total, tuple(refused))
