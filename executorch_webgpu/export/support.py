"""Whether a graph can be planned on every adapter that may load it.

Kernels differ by kind of adapter, and so do the buffers between them: an adapter
without f16 holds halves as f32, and a CPU adapter packs operands that a GPU does not.
Where sizes come near the limits, the graph is planned for all kinds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from .. import ir
from ..errors import Unsupported
from ..ir.dtypes import Storage
from ..plan.caps import AOT_CAPS, Caps
from ..plan.plan import Role
from ..plan.planner import Planner

# The largest buffer of one form is less than so many times the largest of another.
_NEAR = 32


def near_limits(graph: ir.Graph) -> ir.Graph | None:
    """The calls that read or make a tensor so large that some form of it may exceed an
    adapter's limits, as a graph of their own; None if there are none.

    A plan of it has every buffer that is near the limits: what planning does across
    calls, as computing an elementwise one where it is read, makes none larger than the
    tensors that these calls have.
    """
    near = {id for id, value in enumerate(graph.values) if _is_near(value)}
    calls = [
        call
        for call in graph.calls
        if not near.isdisjoint([*call.outputs, *ir.call_inputs(call)])
    ]
    return _part(graph, calls) if calls else None


def _is_near(value: ir.graph.Value) -> bool:
    factor = 1 if value.is_constant else _NEAR
    return math.prod(value.bound) * Storage.F32.size * factor > AOT_CAPS.max_binding


def _part(graph: ir.Graph, calls: list[ir.Call]) -> ir.Graph:
    """Some of a graph's calls; what the others make is an input, what they read an
    output."""
    made = {id for call in calls for id in call.outputs}
    read = dict.fromkeys(id for call in calls for id in ir.call_inputs(call))
    inputs = [
        id
        for id in read
        if id not in made
        and id not in graph.inputs
        and not graph.values[id].data_key
        and not graph.values[id].state
    ]
    part = replace(
        graph,
        calls=calls,
        inputs=[*graph.inputs, *inputs],
        outputs=[],
        mutations={old: new for old, new in graph.mutations.items() if new in made},
    )
    before, after = ir.uses(graph), ir.uses(part)
    part.outputs = [id for id in made if before[id] > after[id]]
    return part


# By a graph's text, what was found of it; None where nothing is remembered.
_found: ContextVar[dict[str, str | None] | None] = ContextVar("found", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """Layers of one model are often alike: while this lasts, of equal graphs only the
    first is planned."""
    token = _found.set({})
    try:
        yield
    finally:
        _found.reset(token)


def check_supported(graph: ir.Graph, smallest: bool = True) -> None:
    """Raises Unsupported unless the graph can be planned at its largest shapes and,
    with `smallest`, at its smallest ones."""
    found = _found.get()
    if found is None or len(graph.calls) > 1:
        _check_supported(graph, smallest)
        return
    key = f"{smallest} {_text(graph)}"
    if key not in found:
        found[key] = _refusal(graph, smallest)
    if found[key] is not None:
        raise Unsupported(found[key])


def _refusal(graph: ir.Graph, smallest: bool) -> str | None:
    try:
        _check_supported(graph, smallest)
    except Unsupported as error:
        return str(error)
    return None


def _text(graph: ir.Graph) -> str:
    """What plans depend on: all but names, and which data a constant has."""
    values = [
        replace(each, name="", data_key=each.data_key and "key")
        for each in graph.values
    ]
    return repr(replace(graph, values=values))


def _check_supported(graph: ir.Graph, smallest: bool) -> None:
    planner = Planner(graph, AOT_CAPS)
    plan = planner.upper_bound()
    if smallest and graph.symbols:
        planner.lower_bound()
    sizes = [b.size for b in plan.buffers if b.role is not Role.CONSTANT]
    if max(sizes, default=0) * _NEAR > AOT_CAPS.max_binding:
        for caps in _others():
            _check_size(graph, caps)


def _check_size(graph: ir.Graph, caps: Caps) -> None:
    try:
        Planner(graph, caps).upper_bound()
    except Unsupported as error:
        raise Unsupported(f"{error} on {caps.name}") from error


def _others() -> list[Caps]:
    # Software drivers bind two buffers more than a browser has to.
    cpu = replace(AOT_CAPS, is_cpu=True, max_storage_buffers=10)
    return [
        replace(AOT_CAPS, f16=False, name="a GPU without f16"),
        replace(AOT_CAPS, subgroups=True, name="a GPU with subgroups"),
        replace(cpu, f16=False, name="a CPU adapter"),
        replace(cpu, subgroups=True, name="llvmpipe with 256 bits"),
    ]
