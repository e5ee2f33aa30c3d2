"""Variant: a plan that serves all sizes for which its guards hold.

Enters: a plan whose numbers are traced, and the trace. Leaves: the plan at other sizes,
without planning: its grids, parameters and shapes are computed from the symbols.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from . import guards
from .plan import Dispatch, Limit, Plan, Port
from .traced_int import Trace, TracedInt


class Variant:
    """A plan with its guards."""

    def __init__(self, plan: Plan, trace: Trace) -> None:
        found = guards.intervals(trace.code, trace.guards, trace.ranges)
        traced = {n.register for n in numbers(plan) if isinstance(n, TracedInt)}
        self.code, self.places = trace.code.needed(traced)
        # Apart, because most variants are only asked whether they hold.
        self.decides, places = trace.code.needed(found)
        self.guards = {places[register]: span for register, span in found.items()}
        # Sizes are those of the upper bound.
        self.plan = plan
        for buffer in plan.buffers:
            assert not isinstance(buffer.size, TracedInt), buffer.key

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether this is the plan for these sizes."""
        values = self.decides.run(sizes)
        return all(low <= values[at] <= high for at, (low, high) in self.guards.items())

    def at(self, sizes: Mapping[str, int]) -> Plan | None:
        """The plan for these sizes; None if the guards do not hold."""
        return self._at(sizes, self.code.run(sizes)) if self.holds(sizes) else None

    def covered(self, sizes: Mapping[str, np.ndarray]) -> np.ndarray:
        """For arrays of sizes: where the guards hold."""
        values = self.decides.run(sizes)
        held = np.ones(len(next(iter(sizes.values()))), bool)
        for register, (low, high) in self.guards.items():
            held &= (low <= values[register]) & (values[register] <= high)
        return held

    def guard_texts(self) -> list[str]:
        return [
            guards.text(self.decides, register, span)
            for register, span in self.guards.items()
        ]

    def _at(self, sizes: Mapping[str, int], values: Sequence[int]) -> Plan:
        def of(number: int) -> int:
            if isinstance(number, TracedInt):
                return values[self.places[number.register]]
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


def numbers(plan: Plan) -> Iterator[int]:
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
