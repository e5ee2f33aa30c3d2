"""Which scratch stores share a buffer: those whose live ranges do not overlap.

Largest first, each store goes to the smallest buffer that is free during its whole
live range. Among buffers of one size, two rules are tried, the oldest and the one that
was in use last, and the rule that takes fewer bytes in all is kept. Buffers made for
one plan keep their size for all later ones, so they never move; whole buffers are
shared, never ranges of them, because WebGPU refuses a dispatch that reads and writes
one buffer even where the ranges differ.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

# Buffers that are tried for one store, so that the time stays bounded where thousands
# of stores are alive at once; plans of real models have some tens of buffers.
MOST_TRIED = 128


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
        ways = [_assign(stores, self.sizes, rule) for rule in (False, True)]
        self.sizes, slots = min(ways, key=lambda way: sum(way[0]))
        return slots


class _Slot:
    """When one buffer is in use: live ranges that do not overlap, in order."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def is_free(self, store: LiveRange) -> bool:
        next_ = bisect_left(self._lasts, store.first)
        return next_ == len(self._firsts) or store.last < self._firsts[next_]

    def idle(self, store: LiveRange) -> int:
        """Dispatches from when it was last in use to the store's first."""
        before = bisect_left(self._lasts, store.first)
        return store.first - (self._lasts[before - 1] if before else 0)

    def take(self, store: LiveRange) -> None:
        at = bisect_left(self._lasts, store.first)
        self._firsts.insert(at, store.first)
        self._lasts.insert(at, store.last)


def _assign(
    stores: Sequence[LiveRange], sizes: Sequence[int], last_used: bool
) -> tuple[list[int], dict[LiveRange, int]]:
    """All sizes, and the slot of each store. Among free slots of one size it is the
    oldest, or with `last_used` the one that was in use last."""
    sizes = list(sizes)
    taken = [_Slot() for _ in sizes]
    by_size = sorted(zip(sizes, range(len(sizes))))
    slots: dict[LiveRange, int] = {}
    for store in sorted(stores, key=lambda s: (-s.size, s.first)):
        slot = _best(store, by_size, taken, last_used)
        if slot is None:
            slot = len(sizes)
            sizes.append(store.size)
            taken.append(_Slot())
            insort(by_size, (store.size, slot))
        taken[slot].take(store)
        slots[store] = slot
    return sizes, slots


def _best(
    store: LiveRange,
    by_size: Sequence[tuple[int, int]],
    taken: Sequence[_Slot],
    last_used: bool,
) -> int | None:
    """A free slot of the smallest size that will do; None if none is found."""
    found: tuple[int, int, int] | None = None  # size, rank, slot
    begin = bisect_left(by_size, (store.size, 0))
    for size, slot in by_size[begin : begin + MOST_TRIED]:
        if found is not None and (size > found[0] or not last_used):
            break
        if taken[slot].is_free(store):
            rank = taken[slot].idle(store) if last_used else 0
            found = min(found or (size, rank, slot), (size, rank, slot))
    return None if found is None else found[2]


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
