"""Planner: ir.Graph and live shapes in, Plan out.

Runs every op function in order on the live shapes. Where these can vary, sizes are
traced, so that the plan serves all for which it would be the same (`variant.py`).
Buffers are sized for the upper bound and named by slots that are the same in every
plan, so a new shape never moves a buffer. Planning is pure: the same shapes give an
equal plan.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from .. import ir
from ..errors import WebGPUError
from ..ir.signatures import LaidOut
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
from .sizes import FEWER, tried
from .state_writes import has_late_report, reports_first
from .tensor import joint_key
from .traced_int import Trace
from .variant import Variant

# Variants that a planner remembers of those that it has made for calls.
_MOST_KEPT = 64


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
        self._has_bound = False
        # A variant that was made serves other sizes, unless forms are being measured.
        self._keeps = tuned is None
        self._variants: list[Variant] = []
        self._most_kept = _MOST_KEPT
        self._undoes = False  # whether a plan may report after it has written a state

    def upper_bound(self) -> Plan:
        """The plan for the largest shapes, which sizes all buffers."""
        env = {name: high for name, (_, high) in self.graph.symbols.items()}
        if self._has_bound:
            return self.plan_at(env)
        self._has_bound = True
        plan = self.plan_at(env)
        return self._place_at_no_cost(plan, env) if self._facts.placed else plan

    def _place_at_no_cost(self, plan: Plan, env: dict[str, int]) -> Plan:
        """The plan without places if that takes less memory: the live range of a
        concatenation's buffer is longer than that of one input."""
        before = self._sizes.pool, self._facts, self._variants
        self._sizes.pool, self._variants = Pool(), []
        self._facts = replace(self._facts, placed={})
        plain = self.plan_at(env)
        if plain.scratch_bytes < plan.scratch_bytes:
            return plain
        self._sizes.pool, self._facts, self._variants = before
        return plan

    def lower_bound(self) -> Plan:
        """The plan for the smallest shapes."""
        return self.plan_at(self._lowest)

    def plan(self, inputs: Sequence[Live]) -> Plan:
        """The plan for live input shapes (of tensors) and values (of integers)."""
        return self.plan_at(self._shapes.bind(inputs))

    def plan_with_values(self, inputs: Sequence[Live]) -> Plan:
        """The same, with where the results of all calls are meanwhile."""
        env = self._shapes.bind(inputs)
        if not self._has_bound:
            self.upper_bound()
        return self._assembled({**self._lowest, **env}, with_values=True)

    def plan_at(self, env: Mapping[str, int]) -> Plan:
        """The plan for these values of the symbols, by a variant that is there, or a
        new one."""
        if not self._has_bound:
            self.upper_bound()
        if not self.ranges:
            return self._assembled(dict(env))
        for at, variant in enumerate(self._variants):
            plan = variant.at(env)
            if plan is not None:
                self._variants.insert(0, self._variants.pop(at))
                return plan
        made = self.variant(env)
        if self._keeps:
            self._variants = [made, *self._variants[: self._most_kept - 1]]
        plan = made.at(env)
        assert plan is not None
        return plan

    @property
    def kept(self) -> tuple[Variant, ...]:
        """The variants that `plan_at` looks at before it makes one."""
        return tuple(self._variants)

    def keep(self, made: Variant) -> None:
        """Has `plan_at` find a variant that was made ahead, and forget none for it."""
        self._variants.append(made)
        self._most_kept = max(self._most_kept, len(self._variants))

    def variant(self, env: Mapping[str, int]) -> Variant:
        """The plan for these values of the symbols, with what it depends on."""
        if not self._has_bound:
            self.upper_bound()
        live = {name: env[name] for name in self.ranges}
        trace = Trace(live, self.ranges, self._fewer)
        try:
            return Variant(self._assembled({**self._lowest, **trace.env}), trace)
        except WebGPUError:
            # Its message has expressions. That of a plan for these sizes alone, which
            # fails as well, has numbers.
            self._assembled({**self._lowest, **live})
            raise

    @property
    def _lowest(self) -> dict[str, int]:
        return {name: low for name, (low, _) in self.graph.symbols.items()}

    @functools.cached_property
    def sizes(self) -> dict[str, np.ndarray]:
        """Those that plans are to serve, as combinations: an array for each symbol."""
        return tried(self.ranges)

    @functools.cached_property
    def _fewer(self) -> dict[str, np.ndarray]:
        return tried(self.ranges, FEWER)

    @functools.cached_property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """The lower and upper bound of what each symbol that plans depend on can be."""
        wanted = self._shapes.shape_symbols
        accepted = self._shapes.accepted()
        return {name: span for name, span in accepted.items() if name in wanted}

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

    def _assembled(self, env: dict[str, int], with_values: bool = False) -> Plan:
        with accidents_in(self.graph):
            recorded = self.record(env)
            return assemble(
                self.graph, self._shapes, recorded, self._sizes, with_values
            )


def _readers(graph: ir.Graph) -> dict[str, set[str]]:
    """The names of the ops that read each constant, by its key."""
    readers: dict[str, set[str]] = {}
    keys = {
        number: value.data_key
        for number, value in enumerate(graph.values)
        if value.is_constant
    }
    for call in graph.calls:
        read = [keys[value] for value in ir.call_inputs(call) if value in keys]
        for key in read:
            readers.setdefault(key, set()).add(call.op)
        if call.op == LaidOut.NAME:
            keys[call.outputs[0]] = joint_key(read)
    return readers
