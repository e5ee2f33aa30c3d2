"""Which scratch stores share a buffer: those whose live ranges do not overlap.

Largest first, each store goes to the smallest buffer that is free during its whole
live range. Among buffers of one size, two rules are tried, the oldest and the one that
was in use last, and the rule that takes fewer bytes in all is kept. Buffers made for
one plan keep their size for all later ones, so they never move; whole buffers are
shared, never ranges of them, because WebGPU refuses a dispatch that reads and writes
one buffer even where the ranges differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class LiveRange:
    """A store of `size` bytes, and the dispatches between which it is alive."""

    size: int
    first: int
    last: int


class Pool:
    """Sizes of the scratch buffers of one delegate."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def assign(self, stores: Sequence[LiveRange]) -> dict[LiveRange, int]:
        """A slot of the pool for every store; new slots only where none fits."""
        ways = [_assign(stores, self.sizes, idle) for idle in (_any_time, _idle_time)]
        self.sizes, slots = min(ways, key=lambda way: sum(way[0]))
        return slots


_Lives = Sequence[LiveRange]


def _assign(
    stores: Sequence[LiveRange],
    sizes: Sequence[int],
    idle: Callable[[LiveRange, _Lives], int],
) -> tuple[list[int], dict[LiveRange, int]]:
    """All sizes, and the slot of each store; `idle` ranks free slots of one size."""
    sizes = list(sizes)
    taken: list[list[LiveRange]] = [[] for _ in sizes]
    slots: dict[LiveRange, int] = {}
    for store in sorted(stores, key=lambda s: (-s.size, s.first)):
        free = [
            (size, idle(store, taken[slot]), slot)
            for slot, size in enumerate(sizes)
            if size >= store.size and not _overlaps(store, taken[slot])
        ]
        if free:
            slot = min(free)[2]
        else:
            slot = len(sizes)
            sizes.append(store.size)
            taken.append([])
        taken[slot].append(store)
        slots[store] = slot
    return sizes, slots


def _any_time(store: LiveRange, taken: _Lives) -> int:
    return 0


def _idle_time(store: LiveRange, taken: _Lives) -> int:
    """Dispatches since the slot was last in use."""
    return store.first - max((o.last for o in taken if o.last < store.first), default=0)


def _overlaps(store: LiveRange, others: Sequence[LiveRange]) -> bool:
    return any(store.first <= o.last and o.first <= store.last for o in others)


def peak(stores: Sequence[LiveRange]) -> int:
    """The largest sum of sizes alive at once, the least any sharing can need."""
    changes: dict[int, int] = {}
    for store in stores:
        changes[store.first] = changes.get(store.first, 0) + store.size
        changes[store.last + 1] = changes.get(store.last + 1, 0) - store.size
    level = best = 0
    for moment in sorted(changes):
        level += changes[moment]
        best = max(best, level)
    return best
