"""Which nodes of the exported program each op call stands for, by ExecuTorch's debug
handles.

Enters: the handle of every node that becomes a call, and the graph after each pass.
Leaves: the map from what the runtime logs of a delegate to handles, which is part of an
ETRecord and not of the program. Passes need not know: a call that a pass leaves stands
for all that was computed, before the pass, between what it reads and what it makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from executorch.exir.backend.utils import DelegateMappingBuilder
from torch.fx import Node

from .. import ir
from ..plan import events
from ..plan.inline_producers import deferred
from ..plan.live_calls import live_calls

Handles = frozenset[int]
_NONE: Handles = frozenset()


class DebugHandles:
    """The handles of the calls of one graph, through the passes."""

    def __init__(self) -> None:
        # By value: the handles of the nodes that the call which makes it stands for.
        self._of: dict[int, Handles] = {}
        # By handle: the value that is the result of the nodes that have it.
        self._results: dict[int, int] = {}
        # By value, before the next pass: what its call reads.
        self._reads: dict[int, tuple[int, ...]] = {}

    def add_call(self, node: Node, results: list[int]) -> None:
        """`node` makes `results`; a handle of 0 is none."""
        if handle := node.meta.get("debug_handle"):
            self._of.update(dict.fromkeys(results, frozenset({handle})))
            self._results.pop(handle, None)
            if len(results) == 1:
                self._results[handle] = results[0]

    def add_result(self, node: Node, result: int) -> None:
        """`node` takes one of several results of another node, and computes nothing."""
        if handle := node.meta.get("debug_handle"):
            self._results[handle] = result

    def start(self, graph: ir.Graph) -> None:
        """Called with the graph before the first pass."""
        self._reads = _reads(graph)

    def follow(self, graph: ir.Graph) -> None:
        """Called after each pass."""
        live = live_calls(graph)  # passes leave dead ones
        kept = {value for call in live for value in call.outputs}
        before: dict[int, list[int]] = {}  # by value: those that it took the place of
        for old in graph.renamed:
            before.setdefault(_renamed(graph, old), []).append(old)
        found: dict[int, Handles] = {}
        handed: dict[int, Handles] = {}  # by value that is new: those of its readers
        for call in reversed(live):
            starts = [v for out in call.outputs for v in (out, *before.get(out, ()))]
            if any(value in self._reads for value in starts):
                handles = self._between(starts, kept, graph.renamed)
            else:
                handles = _NONE.union(*(handed.get(out, _NONE) for out in call.outputs))
            found.update(dict.fromkeys(call.outputs, handles))
            for value in ir.call_inputs(call):
                if value not in self._reads:
                    handed[value] = handed.get(value, _NONE) | handles
        self._of = found
        self._results = {
            handle: _renamed(graph, value) for handle, value in self._results.items()
        }
        graph.renamed.clear()
        self._reads = _reads(graph)

    def _between(
        self, starts: Iterable[int], kept: set[int], renamed: Mapping[int, int]
    ) -> Handles:
        """The handles of all that makes `starts` of values that are still computed."""
        waiting, seen = list(starts), set(starts)
        handles = _NONE
        while waiting:
            value = waiting.pop()
            handles |= self._of.get(value, _NONE)
            for read in self._reads.get(value, ()):
                if read not in kept and read not in renamed and read not in seen:
                    seen.add(read)
                    waiting.append(read)
        return handles

    def mapping(self, graph: ir.Graph) -> dict[str, tuple[int, ...]]:
        """The map of the delegate: the identifiers of `plan/events.py` to handles.

        A value is compared with the model's own, so its handles must be no other
        value's, and it must be the result of the last of them.
        """
        builder = DelegateMappingBuilder()
        inlined = deferred(graph)
        made = {
            v: index for index, call in enumerate(graph.calls) for v in call.outputs
        }
        launched: list[Handles] = []
        logged: set[int] = set()
        for index, call in enumerate(graph.calls):
            own = self._of.get(call.outputs[0], _NONE)
            # What may be computed as it is read.
            producers = {made[v] for v in ir.call_inputs(call) if v in made}
            taken = [launched[p] for p in producers if p in inlined]
            launched.append(own.union(*taken))
            found = {}
            last = max(own, default=0)
            if last not in logged and self._results.get(last) == call.outputs[0]:
                found[events.value_key(index)] = own - logged
                logged |= own
            if launched[index] not in found.values():
                # Last, because the Inspector takes the last key that fits.
                found[events.launch_key(index, call.op)] = launched[index]
            for key, handles in found.items():
                if handles:
                    builder.insert_delegate_mapping_entry(
                        handles=sorted(handles), identifier=key
                    )
        return dict(builder.get_delegate_mapping())


def _reads(graph: ir.Graph) -> dict[int, tuple[int, ...]]:
    return {
        value: tuple(ir.call_inputs(call))
        for call in graph.calls
        for value in call.outputs
    }


def _renamed(graph: ir.Graph, value: int) -> int:
    while value in graph.renamed:
        value = graph.renamed[value]
    return value
