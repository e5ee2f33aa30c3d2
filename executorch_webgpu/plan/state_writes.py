"""The order of reports and of writes to states: a call that fails changes no state.

A call fails late only by a report. A kernel writes to a state only if nothing was
reported before it (`Slot.guard`), so what matters are reports after the first such
write. They are moved before it where they do not depend on it, which leaves none in a
language model whose positions are inputs, or counters. If some are left, the planner
records the plan again with what is written undone in the end (`Recorder.undoes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .launches import Launch
from .plan import Role
from .tensor import Store


def reports_first(launches: Sequence[Launch]) -> list[Launch]:
    """The same launches, with those that report, and what they need, before the first
    that writes a state, unless they depend on that."""
    first = _first_write(launches)
    rest = launches[first:]
    after = _Touched()
    free = []  # what depends on no write to a state
    for launch in rest:
        if _writes_state(launch) or after.conflicts(launch):
            after.add(launch)
        else:
            free.append(launch)
    needed, early = _Touched(), set()
    for launch in reversed(free):
        if launch.reports or needed.conflicts(launch):
            needed.add(launch)
            early.add(id(launch))
    return [
        *launches[:first],
        *(launch for launch in rest if id(launch) in early),
        *(launch for launch in rest if id(launch) not in early),
    ]


def has_late_report(launches: Sequence[Launch]) -> bool:
    """Whether a launch may report when a state has been written."""
    return any(launch.reports for launch in launches[_first_write(launches) :])


class _Touched:
    """The stores that some launches read and write."""

    def __init__(self) -> None:
        self._read: set[Store] = set()
        self._written: set[Store] = set()

    def add(self, launch: Launch) -> None:
        self._read.update(_data(launch.stores))
        self._written |= launch.written

    def conflicts(self, launch: Launch) -> bool:
        """Whether a launch may not change places with them."""
        return not (
            self._written.isdisjoint(launch.stores)
            and self._read.isdisjoint(launch.written)
        )


def _data(stores: Iterable[Store]) -> list[Store]:
    return [store for store in stores if store.role is not Role.STATUS]


def _writes_state(launch: Launch) -> bool:
    return any(store.role is Role.STATE for store in launch.written)


def _first_write(launches: Sequence[Launch]) -> int:
    writes = (n for n, launch in enumerate(launches) if _writes_state(launch))
    return next(writes, len(launches))
