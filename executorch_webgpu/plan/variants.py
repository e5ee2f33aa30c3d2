"""Variants: a few plans that, together, serve every live shape of a graph.

Enters: a planner. Leaves: plans whose grids, parameters and shapes are expressions over
the graph's symbols, each with guards, the comparisons that decided what it consists
of. Where a variant's guards hold, its plan at some sizes is the one that the planner
would make for them, without planning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import WebGPUError
from .planner import Planner
from .variant import Variant

# More variants than this say that something depends on a size that should not.
MOST_VARIANTS = 256
_TOO_MANY = "too many variants"


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
    found: list[Variant] = []
    refused: list[Refused] = []
    for step in walk(planner):
        if isinstance(step, Variant):
            found.append(step)
        else:
            refused.append(step)
    return Cover(tuple(found), _count(planner.sizes), tuple(refused))


def walk(
    planner: Planner, known: Sequence[Variant] = ()
) -> Iterator[Variant | Refused]:
    """The same one after the other, from the largest sizes down, as they are planned;
    without those sizes that `known` variants serve."""
    sizes = planner.sizes
    names = list(sizes)
    left = np.ones(_count(sizes), bool)
    for variant in known:
        left &= ~variant.covered(sizes) if names else False
    made = len(known)
    while left.any() and made < MOST_VARIANTS:
        made += 1
        largest = int(np.flatnonzero(left)[-1])
        point = {name: int(sizes[name][largest]) for name in names}
        try:
            variant = planner.variant(point)
        except WebGPUError as error:
            left[largest] = False
            yield Refused(point, str(error))
            continue
        left &= ~variant.covered(sizes) if names else False
        yield variant
    for at in np.flatnonzero(left):
        yield Refused({name: int(sizes[name][at]) for name in names}, _TOO_MANY)


def _count(sizes: Mapping[str, np.ndarray]) -> int:
    return len(next(iter(sizes.values()))) if sizes else 1
