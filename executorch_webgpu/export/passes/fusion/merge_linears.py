"""One launch for linear layers that read the same input.

Query, key and value are three small products of one tensor: side by side they
are one product, whose parts are views. Layers whose results are used elementwise
stay apart, because there the next op is fused into each of them; if that makes one
value of two layers, `merge_gated` makes them one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from .... import ir
from ....ir.dtypes import Storage
from ....plan.caps import AOT_CAPS
from ....plan.packed_weights import LANES
from ....plan.pointwise import FORMULAS
from ...constants import Constants
from ..rewrite import consumers


@dataclass(frozen=True)
class _Form:
    """Where an op has its constants, and along which dimension the rows lie."""

    constants: tuple[int, ...]
    along: int
    rows: int | None = None  # the argument that is their number, if there is one
    bias: int | None = None  # the constant that may be missing: then it is 0
    unit: int = 1  # rows that are packed together


_FORMS = {
    "webgpu.linear_packed": _Form((1, 2, 3, 7), -1, rows=4, unit=LANES),
    "aten.linear.default": _Form((1, 2), 0, bias=2),
}


def run(graph: ir.Graph, constants: Constants) -> None:
    readers = consumers(graph)
    families: dict[object, list[ir.Call]] = {}
    for call in graph.calls:
        if call.op not in _FORMS or call.post:
            continue
        if _mergeable(graph, constants, readers, call):
            families.setdefault(_kind(graph, call), []).append(call)
    for family in families.values():
        if len(family) > 1 and _fits(graph, family):
            _merge(graph, constants, family)


def _kind(graph: ir.Graph, call: ir.Call) -> object:
    """Equal for layers that can be one."""
    form = _FORMS[call.op]
    types = [
        graph.values[arg.id].dtype if isinstance(arg, ir.Ref) else None
        for arg in (call.args[index] for index in _present(call) if index != form.bias)
    ]
    rest = [
        str(arg)
        for index, arg in enumerate(call.args)
        if index not in (*form.constants, form.rows)
    ]
    return (call.op, str(types), str(rest))


def _present(call: ir.Call) -> list[int]:
    return [index for index in _FORMS[call.op].constants if index < len(call.args)]


def _rows(graph: ir.Graph, call: ir.Call) -> int | None:
    form = _FORMS[call.op]
    if form.rows is not None:
        rows = call.args[form.rows]
        return rows if isinstance(rows, int) else None
    weight = graph.values[_weight(call)]
    return weight.bound[0] if len(weight.bound) == 2 else None


def _weight(call: ir.Call) -> int:
    weight = call.args[_FORMS[call.op].constants[0]]
    assert isinstance(weight, ir.Ref)
    return weight.id


def _mergeable(
    graph: ir.Graph,
    constants: Constants,
    readers: dict[int, list[ir.Call]],
    call: ir.Call,
) -> bool:
    rows = _rows(graph, call)
    given = [call.args[index] for index in _present(call)]
    used = readers.get(call.outputs[0], [])
    return (
        rows is not None
        and rows % _FORMS[call.op].unit == 0
        and all(arg is None or constants.of(arg) is not None for arg in given)
        # A weight with another reader would be kept twice.
        and len(readers[_weight(call)]) == 1
        and call.outputs[0] not in graph.outputs
        and not any(reader.op in FORMULAS for reader in used)
    )


def _fits(graph: ir.Graph, family: list[ir.Call]) -> bool:
    """Whether the joined weight and the joined result can still be bound whole."""
    weights = [graph.values[_weight(call)] for call in family]
    size = sum(math.prod(w.bound) * w.dtype.size for w in weights)
    results = [graph.values[call.outputs[0]] for call in family]
    # Without f16, halves are held as f32.
    made = sum(math.prod(y.bound) * Storage.F32.size for y in results)
    return max(size, made) <= AOT_CAPS.max_binding


def _merge(graph: ir.Graph, constants: Constants, family: list[ir.Call]) -> None:
    first = family[0]
    form = _FORMS[first.op]
    rows = [_rows(graph, call) or 0 for call in family]
    total = sum(rows)
    value = graph.values[first.outputs[0]]
    whole = graph.add(
        replace(
            value,
            name=f"{value.name}_merged",
            shape=(*value.shape[:-1], total),
            bound=(*value.bound[:-1], total),
        )
    )
    args = list(first.args)
    for index in _present(first):
        args[index] = _join(graph, constants, family, index)
    if form.rows is not None:
        args[form.rows] = total
    made = [ir.Call(first.op, args, [whole])]
    start = 0
    for call, count in zip(family, rows):
        cut: list[ir.Arg] = [ir.Ref(whole), -1, start, start + count, 1]
        made.append(ir.Call("aten.slice_copy.Tensor", cut, call.outputs))
        start += count
    at = graph.calls.index(first)
    gone = {id(call) for call in family}
    rest = [call for call in graph.calls[at:] if id(call) not in gone]
    graph.calls = [*graph.calls[:at], *made, *rest]


def _join(
    graph: ir.Graph, constants: Constants, family: list[ir.Call], index: int
) -> ir.Arg:
    """The constants of all calls at one argument, side by side."""
    form = _FORMS[family[0].op]
    given = [call.args[index] for call in family]
    tensors = [constants.of(arg) for arg in given]
    like = next((tensor for tensor in tensors if tensor is not None), None)
    if like is None or (None in given and index != form.bias):
        return None
    parts = [
        like.new_zeros(_rows(graph, call) or 0) if tensor is None else tensor
        for call, tensor in zip(family, tensors)
    ]
    name = next(graph.values[value].name for value in ir.refs(given))
    return constants.add(name, torch.cat(parts, dim=form.along).contiguous())
