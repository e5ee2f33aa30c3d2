"""One dispatch for linear layers that read the same input.

Query, key and value are three small products of one tensor: with their weights side by
side they are one product, and their results are slices of it. Layers whose results are
used elementwise stay apart, because those ops become their epilogues; where the
epilogue of one reads the other's result, `merge_gated` merges them.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from .... import ir
from ....ir.dtypes import Storage
from ....ir.signatures import Linear, LinearPacked, Slice
from ....plan.caps import AOT_CAPS
from ....plan.packed_weights import ROW_UNIT
from ....plan.pointwise import is_formula
from ...constants import Constants
from ..rewrite import consumers
from .linear_layers import Layer, layer_of


def run(graph: ir.Graph, constants: Constants) -> None:
    readers = consumers(graph)
    families: dict[object, list[Layer]] = {}
    for call in graph.calls:
        layer = None if call.post else layer_of(call)
        if layer is not None and _mergeable(graph, constants, readers, layer):
            families.setdefault(_kind(graph, layer), []).append(layer)
    for family in families.values():
        if len(family) > 1 and _fits(graph, family):
            _merge(graph, constants, family)


def _kind(graph: ir.Graph, layer: Layer) -> object:
    """Equal for layers that can be one. Plain ones may have a bias or not: without
    one, it is 0."""
    given = layer.constants()
    if isinstance(layer.args, Linear):
        given.pop("bias")
    types = [arg and graph.values[arg.id].dtype.label for arg in given.values()]
    return (layer.call.op, str(types), str(layer.others()))


def _rows(graph: ir.Graph, layer: Layer) -> int:
    """The rows of a layer's weight; 0 if it is no matrix."""
    if isinstance(layer.args, LinearPacked):
        return layer.args.rows
    weight = graph.values[layer.weight.id]
    return weight.bound[0] if len(weight.bound) == 2 else 0


def _mergeable(
    graph: ir.Graph,
    constants: Constants,
    readers: dict[int, list[ir.Call]],
    layer: Layer,
) -> bool:
    (result,) = layer.call.outputs
    # Rows that are packed together stay so.
    unit = ROW_UNIT if isinstance(layer.args, LinearPacked) else 1
    rows = _rows(graph, layer)
    given = [arg for arg in layer.constants().values() if arg is not None]
    return (
        rows > 0
        and rows % unit == 0
        and all(constants.of(arg) is not None for arg in given)
        # A weight with another reader would be kept twice.
        and len(readers[layer.weight.id]) == 1
        and result not in graph.outputs
        and not any(map(is_formula, readers.get(result, [])))
    )


def _fits(graph: ir.Graph, family: list[Layer]) -> bool:
    """Whether the joined weight and the joined result can still be bound whole."""
    weights = [graph.values[layer.weight.id] for layer in family]
    size = sum(math.prod(w.bound) * w.dtype.size for w in weights)
    results = [graph.values[layer.call.outputs[0]] for layer in family]
    # Without f16, halves are held as f32.
    made = sum(math.prod(y.bound) * Storage.F32.size for y in results)
    return max(size, made) <= AOT_CAPS.max_binding


def _merge(graph: ir.Graph, constants: Constants, family: list[Layer]) -> None:
    first = family[0]
    rows = [_rows(graph, layer) for layer in family]
    total = sum(rows)
    value = graph.values[first.call.outputs[0]]
    whole = graph.add(
        replace(
            value,
            name=f"{value.name}_merged",
            shape=(*value.shape[:-1], total),
            bound=(*value.bound[:-1], total),
        )
    )
    names = first.constants()
    joined = {name: _join(graph, constants, family, name) for name in names}
    made = [first.with_constants(joined, total).call(whole)]
    start = 0
    for layer, count in zip(family, rows):
        cut = Slice(ir.Ref(whole), -1, start, start + count, 1)
        made.append(cut.call(*layer.call.outputs))
        start += count
    at = graph.calls.index(first.call)
    gone = {id(layer.call) for layer in family}
    rest = [call for call in graph.calls[at:] if id(call) not in gone]
    graph.calls = [*graph.calls[:at], *made, *rest]


def _join(
    graph: ir.Graph, constants: Constants, family: list[Layer], name: str
) -> ir.Ref | None:
    """The constants of all layers by that name, side by side."""
    given = [layer.constants()[name] for layer in family]
    known = next((arg for arg in given if arg is not None), None)
    like = constants.of(known)
    if known is None or like is None:
        return None
    tensors = [constants.of(arg) for arg in given]
    filled = [
        like.new_zeros(_rows(graph, layer)) if tensor is None else tensor
        for layer, tensor in zip(family, tensors)
    ]
    joined = torch.cat(filled, dim=family[0].along).contiguous()
    return constants.add(graph.values[known.id].name, joined)
