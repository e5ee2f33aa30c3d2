"""Caches and rotary embeddings written in plain PyTorch become the ops for them.

- x * cos + cat(-x[..., h:], x[..., :h]) * sin, for query and key: `rotary_half`.
- cache[:, :, positions] = rows, of a state: `cache_put`, which writes in place.
- attention over such caches, masked by the same positions' rows of a lower
  triangle: `attend_cached`, which reads only what the positions reach.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .. import ir
from ..builder import ConstantData
from .rewrite import producers

_VIEWS = (
    "aten.view_copy.default",
    "aten.unsqueeze_copy.default",
    "aten.expand_copy.default",
    "aten.alias_copy.default",
    "aten.clone.default",
)


def run(graph: ir.Graph, data: ConstantData) -> None:
    _fuse_rotary(graph)
    _fuse_caches(graph)
    _fuse_cached_attention(graph, data)


def _call(made: dict[int, ir.Call], arg: ir.Arg, *ops: str) -> ir.Call | None:
    """The call of one of `ops` that made an argument."""
    call = made.get(arg.id) if isinstance(arg, ir.Ref) else None
    return call if call is not None and call.op in ops and not call.post else None


# -- rotary embedding ---------------------------------------------------------------


@dataclass(frozen=True)
class _Turn:
    """One tensor that is rotated: x, its angles, and the call that ends it."""

    x: int
    cos: int
    sin: int
    seq: int
    end: ir.Call


def _fuse_rotary(graph: ir.Graph) -> None:
    made = producers(graph)
    turns: dict[tuple[int, int, int], list[_Turn]] = {}
    for call in graph.calls:
        turn = _match_turn(graph, made, call)
        if turn is not None:
            turns.setdefault((turn.cos, turn.sin, turn.seq), []).append(turn)
    places = {id(call): place for place, call in enumerate(graph.calls)}
    gone: set[int] = set()
    for family in turns.values():
        waiting: _Turn | None = None
        for turn in family:
            if waiting is not None and _may_pair(graph, places, waiting, turn):
                _replace(graph, turn.end, waiting, turn)
                gone.add(id(waiting.end))
                waiting = None
            else:
                if waiting is not None:
                    _replace(graph, waiting.end, waiting, None)
                waiting = turn
        if waiting is not None:
            _replace(graph, waiting.end, waiting, None)
    graph.calls = [call for call in graph.calls if id(call) not in gone]


def _replace(graph: ir.Graph, end: ir.Call, first: _Turn, second: _Turn | None) -> None:
    outputs = [first.end.outputs[0]]
    other: ir.Arg = None
    if second is not None:
        outputs.append(second.end.outputs[0])
        other = ir.Ref(second.x)
    end.op = "webgpu.rotary_half"
    end.args = [ir.Ref(first.x), other, ir.Ref(first.cos), ir.Ref(first.sin), first.seq]
    end.outputs = outputs


def _may_pair(
    graph: ir.Graph, places: dict[int, int], first: _Turn, second: _Turn
) -> bool:
    """Whether the first result can wait until the second is computed."""
    a, b = graph.values[first.x], graph.values[second.x]
    if a.dtype is not b.dtype or a.shape[0] != b.shape[0] or a.shape[3] != b.shape[3]:
        return False
    if a.shape[first.seq] != b.shape[first.seq]:
        return False
    start, end = places[id(first.end)], places[id(second.end)]
    result = first.end.outputs[0]
    return not any(result in ir.call_inputs(c) for c in graph.calls[start:end])


def _match_turn(
    graph: ir.Graph, made: dict[int, ir.Call], call: ir.Call
) -> _Turn | None:
    if call.op != "aten.add.Tensor" or call.post or call.args[2] != 1:
        return None
    parts = [_call(made, arg, "aten.mul.Tensor") for arg in call.args[:2]]
    if parts[0] is None or parts[1] is None:
        return None
    for plain, turned in ((parts[0], parts[1]), (parts[1], parts[0])):
        for place in (0, 1):
            x = _half_turned(graph, made, turned.args[place])
            if x is None:
                continue
            sin = turned.args[1 - place]
            others = [arg for arg in plain.args[:2] if arg != ir.Ref(x)]
            if len(others) != 1 or not isinstance(sin, ir.Ref):
                continue
            cos = others[0]
            if isinstance(cos, ir.Ref):
                seq = _sequence_dim(graph, x, cos.id, sin.id)
                if seq is not None:
                    return _Turn(x, cos.id, sin.id, seq, call)
    return None


def _half_turned(graph: ir.Graph, made: dict[int, ir.Call], arg: ir.Arg) -> int | None:
    """x of cat(-x[..., h:], x[..., :h])."""
    cat = _call(made, arg, "aten.cat.default")
    if cat is None or not isinstance(cat.args[0], list) or len(cat.args[0]) != 2:
        return None
    negated = _call(made, cat.args[0][0], "aten.neg.default")
    high = _call(made, negated.args[0], "aten.slice_copy.Tensor") if negated else None
    low = _call(made, cat.args[0][1], "aten.slice_copy.Tensor")
    if high is None or low is None or high.args[0] != low.args[0]:
        return None
    source = low.args[0]
    assert isinstance(source, ir.Ref)
    shape = graph.values[source.id].shape
    width = shape[-1]
    if len(shape) != 4 or not isinstance(width, int) or width % 2:
        return None
    last = (-1, 3)
    half = width // 2
    if cat.args[1] not in last or high.args[1] not in last or low.args[1] not in last:
        return None
    if high.args[2] not in (half, -half) or low.args[2] not in (0, None):
        return None
    ends = low.args[3] in (half, -half) and high.args[4] == low.args[4] == 1
    long = high.args[3] is None or (
        isinstance(high.args[3], int) and high.args[3] >= width
    )
    return source.id if ends and long else None


def _sequence_dim(graph: ir.Graph, x: int, cos: int, sin: int) -> int | None:
    """Along which dimension of x the angles change; None if they do not fit."""
    shape = graph.values[x].shape
    angles = graph.values[cos].shape
    if graph.values[sin].shape != angles or angles[-1:] != shape[-1:]:
        return None
    full = (1,) * (4 - len(angles)) + tuple(angles)
    if full[0] not in (1, shape[0]):
        return None
    if full[1] == 1 and full[2] == shape[2]:
        return 2
    return 1 if full[2] == 1 and full[1] == shape[1] else None


# -- caches -----------------------------------------------------------------------


def _fuse_caches(graph: ir.Graph) -> None:
    for call in graph.calls:
        if call.op != "aten.index_put.default" or call.post or call.args[3]:
            continue
        cache, indices, value = call.args[:3]
        if not isinstance(cache, ir.Ref) or not graph.values[cache.id].state:
            continue
        if not isinstance(indices, list) or any(i is not None for i in indices[:-1]):
            continue
        at = indices[-1]
        if not isinstance(at, ir.Ref) or len(graph.values[at.id].shape) != 1:
            continue
        kind = graph.values[at.id].dtype
        if not kind.is_int:
            continue
        call.op = "webgpu.cache_put"
        call.args = [cache, value, len(indices) - 1, at]


def _fuse_cached_attention(graph: ir.Graph, data: ConstantData) -> None:
    made = producers(graph)
    for call in graph.calls:
        if call.op != "aten.scaled_dot_product_attention.default" or call.post:
            continue
        q, k, v, mask, dropout, causal, scale, _ = call.args
        stored = [_call(made, arg, "webgpu.cache_put") for arg in (k, v)]
        if stored[0] is None or stored[1] is None or dropout or causal:
            continue
        at = stored[0].args[3]
        if at != stored[1].args[3] or stored[0].args[2] != 2 or stored[1].args[2] != 2:
            continue
        if _masked_by(graph, data, made, mask) != at:
            continue
        call.op = "webgpu.attend_cached"
        call.args = [q, k, v, at, scale]


def _masked_by(
    graph: ir.Graph, data: ConstantData, made: dict[int, ir.Call], mask: ir.Arg
) -> ir.Arg:
    """The positions whose rows of a lower triangle the mask is."""
    view = _call(made, mask, *_VIEWS)
    while view is not None:
        mask = view.args[0]
        view = _call(made, mask, *_VIEWS)
    index = _call(made, mask, "aten.index.Tensor")
    if index is None or not isinstance(index.args[0], ir.Ref):
        return None
    table = graph.values[index.args[0].id]
    if not table.is_constant or len(table.shape) != 2:
        return None
    if not isinstance(index.args[1], list) or len(index.args[1]) != 1:
        return None
    values = data.tensors[table.data_key]
    keep = torch.ones_like(values, dtype=torch.bool).tril()
    if values.dtype == torch.bool:
        fits = bool((values == keep).all())
    else:
        low = torch.full_like(values, float("-inf")).masked_fill(keep, 0.0)
        fits = values.is_floating_point() and bool((values == low).all())
    return index.args[1][0] if fits else None
