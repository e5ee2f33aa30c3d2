"""Variants: a few plans that, together, serve every live shape of a graph.

Enters: a planner. Leaves: plans whose grids, parameters and shapes are expressions over
the graph's symbols, each with guards, the comparisons that decided what it consists
of. Where a variant's guards hold, its plan at some sizes is the one that the planner
would make for them, without planning.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import WebGPUError
from .plan import Dispatch, Limit, Plan, Port
from .planner import Planner
from .traced_int import Trace, TracedInt

# More variants than this say that something depends on a size that should not.
MOST_VARIANTS = 64
# Sizes, or combinations of them, that are tried to see what is covered.
_MOST_TRIED = 1 << 17


class Variant:
    """A plan with its guards."""

    def __init__(
        self, plan: Plan, trace: Trace, ranges: Mapping[str, tuple[int, int]]
    ) -> None:
        guards = _undecided(trace, ranges)
        numbers = [n for n in _numbers(plan) if isinstance(n, TracedInt)]
        self.code, self._places = trace.code.needed(
            [*(number.register for number in numbers), *guards]
        )
        self.guards = {self._places[register]: guards[register] for register in guards}
        # Buffers are those of the upper bound; forms are chosen.
        self.plan = replace(plan, choices=())
        for buffer in plan.buffers:
            assert not isinstance(buffer.size, TracedInt), buffer.key

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether this is the plan for these sizes."""
        return self._holds(self.code.run(sizes))

    def at(self, sizes: Mapping[str, int]) -> Plan | None:
        """The plan for these sizes; None if the guards do not hold."""
        values = self.code.run(sizes)
        return self._at(sizes, values) if self._holds(values) else None

    def covered(self, sizes: Mapping[str, np.ndarray]) -> np.ndarray:
        """For arrays of sizes: where the guards hold."""
        values = self.code.run(sizes)
        held = np.ones(len(next(iter(sizes.values()))), bool)
        for register, outcome in self.guards.items():
            held &= values[register] == outcome
        return held

    def guard_texts(self) -> list[str]:
        return [
            self.code.text(register) if outcome else f"not {self.code.text(register)}"
            for register, outcome in self.guards.items()
        ]

    def _holds(self, values: Sequence[int]) -> bool:
        return all(values[at] == outcome for at, outcome in self.guards.items())

    def _at(self, sizes: Mapping[str, int], values: Sequence[int]) -> Plan:
        def of(number: int) -> int:
            if isinstance(number, TracedInt):
                return values[self._places[number.register]]
            return number

        def port(each: Port) -> Port:
            limits = tuple(
                Limit(limit.label, of(limit.add), of(limit.count), of(limit.length))
                for limit in each.limits
            )
            shape = tuple(map(of, each.shape))
            return replace(each, shape=shape, value=of(each.value), limits=limits)

        def dispatch(each: Dispatch) -> Dispatch:
            x, y, z = map(of, each.groups)
            ranges = tuple(
                None if bound is None else (of(bound[0]), of(bound[1]))
                for bound in each.ranges
            )
            return replace(each, groups=(x, y, z), ranges=ranges)

        params = bytearray(self.plan.params)
        for offset, size in self.plan.sizes:
            struct.pack_into("<i", params, offset, of(size))
        return replace(
            self.plan,
            dispatches=tuple(map(dispatch, self.plan.dispatches)),
            params=bytes(params),
            inputs=tuple(map(port, self.plan.inputs)),
            outputs=tuple(map(port, self.plan.outputs)),
            symbols=dict(sizes),
            sizes=(),
        )


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
    ranges = planner.accepted()
    sizes = tried(ranges)
    names = list(ranges)
    total = len(sizes[names[0]]) if names else 1
    left = np.ones(total, bool)
    found: list[Variant] = []
    refused: list[Refused] = []
    while left.any() and len(found) + len(refused) < MOST_VARIANTS:
        largest = int(np.flatnonzero(left)[-1])
        point = {name: int(sizes[name][largest]) for name in names}
        try:
            variant = Variant(*planner.trace(point, sizes), ranges)
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


def tried(ranges: Mapping[str, tuple[int, int]]) -> dict[str, np.ndarray]:
    """All combinations of sizes, or, if they are too many, of some of each symbol."""
    if not ranges:
        return {}
    most = _MOST_TRIED
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


def _undecided(trace: Trace, ranges: Mapping[str, tuple[int, int]]) -> dict[int, bool]:
    """The guards that do not hold for all sizes anyway."""
    bounds = trace.code.bounds(ranges)
    return {
        register: outcome
        for register, outcome in trace.guards.items()
        if bounds[register] != (int(outcome), int(outcome))
    }


def _numbers(plan: Plan) -> Iterator[int]:
    """All numbers of a plan that may depend on sizes."""
    for dispatch in plan.dispatches:
        yield from dispatch.groups
        yield from itertools.chain(*(bound for bound in dispatch.ranges if bound))
    for port in (*plan.inputs, *plan.outputs):
        yield from port.shape
        yield port.value
        for limit in port.limits:
            yield from (limit.add, limit.count, limit.length)
    yield from (size for _, size in plan.sizes)
