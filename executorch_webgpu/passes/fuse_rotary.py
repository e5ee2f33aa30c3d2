"""Rotary embeddings written in plain PyTorch become one op for query and key.

With h half the head's size and every angle for one token:
- halves, x * cos + cat(-x[..., h:], x[..., :h]) * sin, angles of the head's size;
- pairs, x as [..., h, 2] = (r, i) to stack(r * cos - i * sin, r * sin + i * cos),
  angles of half of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import ir
from ..builder import ConstantData
from ..dtypes import DType
from .rewrite import CASTS, Producers, made_by, producers

_VIEWS = ("aten.view_copy.default", "aten.unsqueeze_copy.default")


@dataclass(frozen=True)
class _Turn:
    """One tensor that is rotated: x, its angles, and the call that ends it."""

    x: int
    cos: int
    sin: int
    seq: int
    interleaved: bool
    end: ir.Call


def run(graph: ir.Graph, data: ConstantData) -> None:
    made = producers(graph)
    turns: dict[tuple[object, ...], list[_Turn]] = {}
    for call in graph.calls:
        turn = _match_halves(graph, made, call) or _match_pairs(graph, made, call)
        if turn is not None:
            angles = (_origin(made, turn.cos), _origin(made, turn.sin))
            kind = (*angles, turn.seq, turn.interleaved)
            turns.setdefault(kind, []).append(turn)
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


def _origin(made: Producers, value: int) -> str:
    """Equal for values that are equal views of one value."""
    call = made_by(made, ir.Ref(value), *_VIEWS)
    return str(value) if call is None else f"{call.op} {call.args}"


def _replace(graph: ir.Graph, end: ir.Call, first: _Turn, second: _Turn | None) -> None:
    outputs = [first.end.outputs[0]]
    other: ir.Arg = None
    if second is not None:
        outputs.append(second.end.outputs[0])
        other = ir.Ref(second.x)
    end.op = "webgpu.rotary"
    angles = (ir.Ref(first.cos), ir.Ref(first.sin))
    end.args = [ir.Ref(first.x), other, *angles, first.seq, first.interleaved]
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


def _match_halves(graph: ir.Graph, made: Producers, call: ir.Call) -> _Turn | None:
    if call.op != "aten.add.Tensor" or call.post or call.args[2] != 1:
        return None
    parts = [made_by(made, arg, "aten.mul.Tensor") for arg in call.args[:2]]
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
                seq = _sequence_dim(graph, x, cos.id, sin.id, 1)
                if seq is not None:
                    return _Turn(x, cos.id, sin.id, seq, False, call)
    return None


def _half_turned(graph: ir.Graph, made: Producers, arg: ir.Arg) -> int | None:
    """x of cat(-x[..., h:], x[..., :h])."""
    cat = made_by(made, arg, "aten.cat.default")
    if cat is None or not isinstance(cat.args[0], list) or len(cat.args[0]) != 2:
        return None
    negated = made_by(made, cat.args[0][0], "aten.neg.default")
    high = made_by(made, negated.args[0], "aten.slice_copy.Tensor") if negated else None
    low = made_by(made, cat.args[0][1], "aten.slice_copy.Tensor")
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


def _match_pairs(graph: ir.Graph, made: Producers, call: ir.Call) -> _Turn | None:
    if call.op != "aten.view_copy.default" or call.post:
        return None
    cat = made_by(made, call.args[0], "aten.cat.default")
    if cat is None or not isinstance(cat.args[0], list) or len(cat.args[0]) != 2:
        return None
    columns = [made_by(made, arg, "aten.unsqueeze_copy.default") for arg in cat.args[0]]
    if cat.args[1] not in (-1, 4) or columns[0] is None or columns[1] is None:
        return None
    if columns[0].args[1] not in (-1, 4) or columns[1].args[1] not in (-1, 4):
        return None
    real = made_by(made, columns[0].args[0], "aten.sub.Tensor")
    imaginary = made_by(made, columns[1].args[0], "aten.add.Tensor")
    if real is None or imaginary is None or real.args[2] != 1 or imaginary.args[2] != 1:
        return None
    terms = (*real.args[:2], *imaginary.args[:2])
    products = [_factors(graph, made, term) for term in terms]
    for r, cos in products[0]:
        for i, sin in products[1]:
            wanted = ({r, sin}, {i, cos})
            found = [set(pair) for factors in products[2:] for pair in factors[:1]]
            if len(found) != 2 or found not in (list(wanted), list(wanted[::-1])):
                continue
            x = _pairs_of(graph, made, r, i)
            if (
                x is None
                or graph.values[x].shape != graph.values[call.outputs[0]].shape
            ):
                continue
            seq = _sequence_dim(graph, x, cos, sin, 2)
            if seq is not None:
                return _Turn(x, cos, sin, seq, True, call)
    return None


def _factors(graph: ir.Graph, made: Producers, arg: ir.Arg) -> list[tuple[int, int]]:
    """Both orders of the two tensors that were multiplied, before they widened."""
    product = made_by(made, arg, "aten.mul.Tensor")
    if product is None:
        return []
    a, b = (_narrow(graph, made, factor) for factor in product.args[:2])
    return [] if a is None or b is None else [(a, b), (b, a)]


def _narrow(graph: ir.Graph, made: Producers, arg: ir.Arg) -> int | None:
    """A tensor, or what it was before a conversion to float32 that lost nothing."""
    if not isinstance(arg, ir.Ref):
        return None
    cast = made_by(made, arg, *CASTS)
    source = cast.args[0] if cast else None
    if isinstance(source, ir.Ref) and graph.values[arg.id].dtype is DType.FLOAT32:
        kind = graph.values[source.id].dtype
        if kind.is_float and kind is not DType.FLOAT64:
            return source.id
    return arg.id


def _pairs_of(graph: ir.Graph, made: Producers, r: int, i: int) -> int | None:
    """x whose columns 2j are r and 2j + 1 are i."""
    sources = [_column(made, part, place) for place, part in enumerate((r, i))]
    if sources[0] is None or sources[0] != sources[1]:
        return None
    view = made_by(made, sources[0], "aten.view_copy.default")
    if view is None or not isinstance(view.args[0], ir.Ref):
        return None
    shape = graph.values[view.args[0].id].shape
    pairs = graph.values[view.outputs[0]].shape
    if len(shape) != 4 or not isinstance(shape[3], int):
        return None
    return view.args[0].id if pairs == (*shape[:3], shape[3] // 2, 2) else None


def _column(made: Producers, part: int, place: int) -> ir.Arg:
    """What `part` is column `place` of, in the last of five dimensions."""
    select = made_by(made, ir.Ref(part), "aten.select_copy.int")
    if select is not None:
        return select.args[0] if select.args[1:3] in ([4, place], [-1, place]) else None
    squeeze = made_by(made, ir.Ref(part), "aten.squeeze_copy.dims")
    if squeeze is None or squeeze.args[1] not in ([4], [-1]):
        return None
    cut = made_by(made, squeeze.args[0], "aten.slice_copy.Tensor")
    if cut is None or cut.args[1] not in (4, -1) or cut.args[4] != 1:
        return None
    return cut.args[0] if cut.args[2:4] == [place, place + 1] else None


def _sequence_dim(
    graph: ir.Graph, x: int, cos: int, sin: int, share: int
) -> int | None:
    """Along which dimension of x the angles change; None if they do not fit.

    There is an angle for every `share` columns.
    """
    shape = graph.values[x].shape
    angles = graph.values[cos].shape
    width = shape[-1]
    if graph.values[sin].shape != angles or not isinstance(width, int):
        return None
    if not angles or angles[-1] != width // share:
        return None
    full = (1,) * (4 - len(angles)) + tuple(angles)
    if full[0] not in (1, shape[0]):
        return None
    if full[1] == 1 and full[2] == shape[2]:
        return 2
    return 1 if full[2] == 1 and full[1] == shape[1] else None
