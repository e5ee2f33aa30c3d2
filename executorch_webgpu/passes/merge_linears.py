"""One launch for packed linear layers that read the same input.

Query, key and value are three small products of one tensor: side by side they
are one product, whose parts are views. Layers whose results are used elementwise
stay apart, because there the next op is fused into each of them.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from .. import ir
from ..builder import ConstantData
from ..packed import LANES
from ..pointwise import FORMULAS
from .rewrite import consumers

_LINEAR = "webgpu.linear_packed"


def run(graph: ir.Graph, data: ConstantData) -> None:
    readers = consumers(graph)
    families: dict[object, list[ir.Call]] = {}
    for call in graph.calls:
        if call.op == _LINEAR and not call.post and _mergeable(graph, readers, call):
            x, _, _, offsets, _, bits, group, bias = call.args
            kind = (str(x), offsets is None, bits, group, bias is None)
            families.setdefault(kind, []).append(call)
    for family in families.values():
        if len(family) > 1:
            _merge(graph, data, family)


def _mergeable(
    graph: ir.Graph, readers: dict[int, list[ir.Call]], call: ir.Call
) -> bool:
    rows = call.args[4]
    used = readers.get(call.outputs[0], [])
    return (
        isinstance(rows, int)
        and rows % LANES == 0
        and call.outputs[0] not in graph.outputs
        and not any(reader.op in FORMULAS for reader in used)
    )


def _merge(graph: ir.Graph, data: ConstantData, family: list[ir.Call]) -> None:
    first = family[0]
    x, _, _, _, _, bits, group, bias = first.args
    rows = [call.args[4] for call in family if isinstance(call.args[4], int)]
    total = sum(rows)
    joined = [_join(graph, data, family, index) for index in (1, 2, 3)]
    value = graph.values[first.outputs[0]]
    whole = graph.add(
        replace(
            value,
            name=f"{value.name}_merged",
            shape=(*value.shape[:-1], total),
            bound=(*value.bound[:-1], total),
        )
    )
    biases = _join(graph, data, family, 7) if bias is not None else None
    merged = ir.Call(_LINEAR, [x, *joined, total, bits, group, biases], [whole])
    made = [merged]
    start = 0
    for call, count in zip(family, rows):
        args: list[ir.Arg] = [ir.Ref(whole), -1, start, start + count, 1]
        made.append(ir.Call("aten.slice_copy.Tensor", args, call.outputs))
        start += count
    at = graph.calls.index(first)
    gone = {id(call) for call in family}
    rest = [call for call in graph.calls[at:] if id(call) not in gone]
    graph.calls = [*graph.calls[:at], *made, *rest]


def _join(
    graph: ir.Graph, data: ConstantData, family: list[ir.Call], index: int
) -> ir.Arg:
    """The constants of all calls at one argument, side by side."""
    parts = []
    for call in family:
        arg = call.args[index]
        if not isinstance(arg, ir.Ref):
            return None
        parts.append(data.tensors[graph.values[arg.id].data_key])
    tensor = torch.cat(parts, dim=-1).contiguous()
    first = family[0].args[index]
    assert isinstance(first, ir.Ref)
    shape = tuple(tensor.shape)
    value = replace(
        graph.values[first.id], shape=shape, bound=shape, data_key=data.key(tensor)
    )
    return ir.Ref(graph.add(value))
