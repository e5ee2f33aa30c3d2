"""Rotary embeddings written in plain PyTorch become one op for query and key.

With h half the head's size and every angle for one token:
- halves, x * cos + cat(-x[..., h:], x[..., :h]) * sin, angles of the head's size;
- halves apart, x as (r, i) to cat(r * cos - i * sin, r * sin + i * cos), angles of
  half of it;
- pairs, x as [..., h, 2] = (r, i) to stack(r * cos - i * sin, r * sin + i * cos),
  angles of half of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .... import ir
from ....ir.dtypes import DType
from ....ir.signatures import Cat, Rotary, Select, Slice
from ...constants import Constants
from ..rewrite import Producers, cast_of, made_as, made_by, producers

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


def run(graph: ir.Graph, constants: Constants) -> None:
    made = producers(graph)
    turns: dict[tuple[object, ...], list[_Turn]] = {}
    for call in graph.calls:
        for match in (_match_halves, _match_halves_apart, _match_pairs):
            turn = match(graph, made, call)
            if turn is None:
                continue
            angles = (_origin(made, turn.cos), _origin(made, turn.sin))
            kind = (*angles, turn.seq, turn.interleaved)
            turns.setdefault(kind, []).append(turn)
            break
    order = {id(call): number for number, call in enumerate(graph.calls)}
    gone: set[int] = set()
    for family in turns.values():
        waiting: _Turn | None = None
        for turn in family:
            if waiting is not None and _may_pair(graph, order, waiting, turn):
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
    other: ir.Ref | None = None
    if second is not None:
        outputs.append(second.end.outputs[0])
        other = ir.Ref(second.x)
    angles = (ir.Ref(first.cos), ir.Ref(first.sin), first.seq, first.interleaved)
    Rotary(ir.Ref(first.x), other, *angles).write_to(end)
    end.outputs = outputs


def _may_pair(
    graph: ir.Graph, order: dict[int, int], first: _Turn, second: _Turn
) -> bool:
    """Whether the first result can wait until the second is computed."""
    a, b = graph.values[first.x], graph.values[second.x]
    if a.dtype is not b.dtype or a.shape[0] != b.shape[0] or a.shape[3] != b.shape[3]:
        return False
    if a.shape[first.seq] != b.shape[first.seq]:
        return False
    start, end = order[id(first.end)], order[id(second.end)]
    result = first.end.outputs[0]
    return not any(result in ir.call_inputs(c) for c in graph.calls[start:end])


def _match_halves(graph: ir.Graph, made: Producers, call: ir.Call) -> _Turn | None:
    if call.op != "aten.add.Tensor" or call.post or call.args[2] != 1:
        return None
    terms = [made_by(made, arg, "aten.mul.Tensor") for arg in call.args[:2]]
    if terms[0] is None or terms[1] is None:
        return None
    for plain, turned in ((terms[0], terms[1]), (terms[1], terms[0])):
        for index in (0, 1):
            x = _half_turned(graph, made, turned.args[index])
            if x is None:
                continue
            sin = turned.args[1 - index]
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
    cat = made_as(made, arg, Cat)
    if cat is None or len(cat.tensors) != 2 or cat.dim not in (-1, 3):
        return None
    high, low = cat.tensors
    negated = made_by(made, high, "aten.neg.default")
    return None if negated is None else _halves_of(graph, made, low, negated.args[0])


def _halves_of(
    graph: ir.Graph, made: Producers, low: ir.Arg, high: ir.Arg
) -> int | None:
    """x of x[..., :h] and x[..., h:]."""
    first, second = (made_as(made, arg, Slice) for arg in (low, high))
    if first is None or second is None or first.x != second.x:
        return None
    shape = graph.values[first.x.id].shape
    width = shape[-1]
    if len(shape) != 4 or not isinstance(width, int) or width % 2:
        return None
    half = (width // 2, -(width // 2))
    along = all(cut.dim in (-1, 3) and cut.step == 1 for cut in (first, second))
    begins = first.start in (0, None) and second.start in half
    last = second.end
    ends = last is None or (isinstance(last, int) and last >= width)
    return first.x.id if along and begins and first.end in half and ends else None


def _match_halves_apart(
    graph: ir.Graph, made: Producers, call: ir.Call
) -> _Turn | None:
    if call.op != Cat.NAME or call.post:
        return None
    cat = Cat.of(call)
    if len(cat.tensors) != 2 or cat.dim not in (-1, 3):
        return None
    for r, i, cos, sin in _complex_products(graph, made, *cat.tensors):
        x = _halves_of(graph, made, ir.Ref(r), ir.Ref(i))
        seq = None if x is None else _sequence_dim(graph, x, cos, sin, 2)
        if x is not None and seq is not None:
            return _Turn(x, cos, sin, seq, False, call)
    return None


def _match_pairs(graph: ir.Graph, made: Producers, call: ir.Call) -> _Turn | None:
    if call.op != "aten.view_copy.default" or call.post:
        return None
    cat = made_as(made, call.args[0], Cat)
    if cat is None or len(cat.tensors) != 2 or cat.dim not in (-1, 4):
        return None
    columns = [made_by(made, arg, "aten.unsqueeze_copy.default") for arg in cat.tensors]
    if columns[0] is None or columns[1] is None:
        return None
    if columns[0].args[1] not in (-1, 4) or columns[1].args[1] not in (-1, 4):
        return None
    real, imaginary = columns[0].args[0], columns[1].args[0]
    for r, i, cos, sin in _complex_products(graph, made, real, imaginary):
        x = _pairs_of(graph, made, r, i)
        if x is None or graph.values[x].shape != graph.values[call.outputs[0]].shape:
            continue
        seq = _sequence_dim(graph, x, cos, sin, 2)
        if seq is not None:
            return _Turn(x, cos, sin, seq, True, call)
    return None


def _complex_products(
    graph: ir.Graph, made: Producers, real: ir.Arg, imaginary: ir.Arg
) -> Iterator[tuple[int, int, int, int]]:
    """(r, i, cos, sin) of real = r * cos - i * sin, imaginary = r * sin + i * cos."""
    less = made_by(made, real, "aten.sub.Tensor")
    more = made_by(made, imaginary, "aten.add.Tensor")
    if less is None or more is None or less.args[2] != 1 or more.args[2] != 1:
        return
    terms = (*less.args[:2], *more.args[:2])
    products = [_factors(graph, made, term) for term in terms]
    found = [set(pair) for factors in products[2:] for pair in factors[:1]]
    for r, cos in products[0]:
        for i, sin in products[1]:
            wanted = [{r, sin}, {i, cos}]
            if found in (wanted, wanted[::-1]):
                yield r, i, cos, sin


def _factors(graph: ir.Graph, made: Producers, arg: ir.Arg) -> list[tuple[int, int]]:
    """Both orders of the two tensors that were multiplied, before they were widened."""
    product = made_by(made, arg, "aten.mul.Tensor")
    if product is None:
        return []
    a, b = (_narrow(graph, made, factor) for factor in product.args[:2])
    return [] if a is None or b is None else [(a, b), (b, a)]


def _narrow(graph: ir.Graph, made: Producers, arg: ir.Arg) -> int | None:
    """A tensor, or what it was before a conversion to float32 that lost nothing."""
    if not isinstance(arg, ir.Ref):
        return None
    cast = cast_of(made, arg)
    source = cast.args[0] if cast else None
    if isinstance(source, ir.Ref) and graph.values[arg.id].dtype is DType.FLOAT32:
        kind = graph.values[source.id].dtype
        if kind.is_float and kind is not DType.FLOAT64:
            return source.id
    return arg.id


def _pairs_of(graph: ir.Graph, made: Producers, r: int, i: int) -> int | None:
    """x whose columns 2j are r and 2j + 1 are i."""
    sources = [_column(made, value, index) for index, value in enumerate((r, i))]
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


def _column(made: Producers, value: int, index: int) -> ir.Arg:
    """The tensor whose last of five dimensions has `value` at `index`."""
    select = made_as(made, ir.Ref(value), Select)
    if select is not None:
        here = select.dim in (4, -1) and select.index == index
        return select.x if here else None
    squeeze = made_by(made, ir.Ref(value), "aten.squeeze_copy.dims")
    if squeeze is None or squeeze.args[1] not in ([4], [-1]):
        return None
    cut = made_as(made, squeeze.args[0], Slice)
    if cut is None or cut.dim not in (4, -1) or cut.step != 1:
        return None
    return cut.x if (cut.start, cut.end) == (index, index + 1) else None


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
