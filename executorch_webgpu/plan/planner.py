"""Planner: ir.Graph and live shapes in, Plan out.

Runs every op function in order on the live shapes. Buffers are sized for the
upper bound and named by slots that are the same in every plan, so a new shape
never moves a buffer. Planning is pure: the same shapes give an equal plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from .. import ir
from .accidents import accidents_in
from .assemble_plan import Sizes, assemble
from .caps import Caps
from .concat_in_place import placed
from .inline_producers import deferred, last_uses
from .live_shapes import Live, LiveShapes
from .lower_calls import CallLowering, GraphFacts, Recorded
from .plan import Plan
from .recorder import Recorder
from .scratch import Pool
from .state_writes import has_late_report, reports_first
from .traced_int import Trace


class Planner:
    """Plans for one graph on one kind of device."""

    def __init__(
        self, graph: ir.Graph, caps: Caps, tuned: Mapping[str, str] | None = None
    ) -> None:
        self.graph = graph
        self.caps = caps
        # Forms that measuring has found to be the best, by the choice's key.
        self.tuned = dict(tuned or {})
        with accidents_in(graph):
            inlined = deferred(graph)
            self._shapes = LiveShapes(graph)
            self._facts = GraphFacts(
                graph,
                self._shapes,
                inlined,
                last_uses(graph, inlined),
                placed(graph, inlined),
            )
        self._readers = _readers(graph)
        self._sizes = Sizes()
        # Sizes of temporaries at the upper bound, by call and order within it.
        self._bounds: dict[tuple[int, int], int] = {}
        self._planned_bound = False
        self._undoes = False  # whether a plan may report after it has written a state

    def upper_bound(self) -> Plan:
        """The plan for the largest shapes, which sizes all buffers."""
        env = {name: high for name, (_, high) in self.graph.symbols.items()}
        plan = self.plan_at(env)
        if self._facts.placed and not self._planned_bound:
            plan = self._place_at_no_cost(plan, env)
        self._planned_bound = True
        return plan

    def _place_at_no_cost(self, plan: Plan, env: dict[str, int]) -> Plan:
        """The plan without places if that takes less memory: the live range of a
        concatenation's buffer is longer than that of one input."""
        pool, facts = self._sizes.pool, self._facts
        self._sizes.pool, self._facts = Pool(), replace(facts, placed={})
        plain = self.plan_at(env)
        if plain.scratch_bytes < plan.scratch_bytes:
            return plain
        self._sizes.pool, self._facts = pool, facts
        return plan

    def lower_bound(self) -> Plan:
        """The plan for the smallest shapes."""
        env = {name: low for name, (low, _) in self.graph.symbols.items()}
        return self.plan_at(env)

    def plan(self, inputs: Sequence[Live]) -> Plan:
        """The plan for live input shapes (of tensors) and values (of integers)."""
        if not self._planned_bound:
            self.upper_bound()
        return self.plan_at(self._shapes.bind(inputs))

    def trace(
        self, symbols: Mapping[str, int], sizes: Mapping[str, np.ndarray]
    ) -> tuple[Plan, Trace]:
        """The plan for these values of the symbols, whose numbers are traced, and the
        trace; `sizes` are all that it may have to serve."""
        if not self._planned_bound:
            self.upper_bound()
        trace = Trace(symbols, sizes)
        return self.plan_at(trace.env), trace

    def accepted(self) -> dict[str, tuple[int, int]]:
        """The lower and upper bound of each symbol's live value."""
        return self._shapes.accepted()

    def record(self, env: dict[str, int]) -> Recorded:
        """All calls, planned for these values of the symbols."""
        recorded = self._record(env)
        if not self._undoes and has_late_report(recorded.g.launches.launched):
            # The temporaries of calls are others from now on.
            self._undoes = True
            self._bounds.clear()
            recorded = self._record(env)
        return recorded

    def _record(self, env: dict[str, int]) -> Recorded:
        g = Recorder(
            self.caps, self._readers, self.tuned, self._bounds, undoes=self._undoes
        )
        recorded = CallLowering(self._facts, g, env).run()
        g.launches.launched = reports_first(g.launches.launched)
        return recorded

    def plan_at(self, env: dict[str, int]) -> Plan:
        """The plan for these values of the symbols."""
        with accidents_in(self.graph):
            return assemble(self.graph, self._shapes, self.record(env), self._sizes)


def _readers(graph: ir.Graph) -> dict[str, set[str]]:
    """The names of the ops that read each constant, by its key."""
    readers: dict[str, set[str]] = {}
    for call in graph.calls:
        for value in ir.call_inputs(call):
            if graph.values[value].is_constant:
                readers.setdefault(graph.values[value].data_key, set()).add(call.op)
    return readers
