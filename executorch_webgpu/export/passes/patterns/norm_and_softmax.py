"""Layer norm and softmax written out become the ops for them.

- (x - mean) * rsqrt(variance + eps), or divided by the root, with the variance as the
  mean of squares or as `var`, perhaps with x - mean times a weight first: one dispatch
  instead of six or more. A weight and a bias that follow become its epilogue.
- exp(x - max) / sum: one dispatch instead of four.

Both subtract first, as the kernels do, so nothing overflows that did not before. Only
float32: ops of a smaller type round in between, which the op does not.
"""

from __future__ import annotations

from .... import ir
from ....ir.dtypes import DType
from ....ir.signatures import Amax, LayerNorm, Mean, Softmax, Sum
from ...constants import Constants
from ..rewrite import Producers, made_as, made_by, producers

_MUL, _DIV, _SUB = "aten.mul.Tensor", "aten.div.Tensor", "aten.sub.Tensor"


def run(graph: ir.Graph, constants: Constants) -> None:
    made = producers(graph)
    for call in graph.calls:
        if call.post or call.op not in (_MUL, _DIV):
            continue
        if graph.values[call.outputs[0]].dtype is not DType.FLOAT32:
            continue
        found = _layer_norm(graph, made, call) or _softmax(graph, made, call)
        if found is not None:
            found.write_to(call)


def _layer_norm(graph: ir.Graph, made: Producers, call: ir.Call) -> LayerNorm | None:
    """The layer norm that a product or quotient is."""
    root = "aten.rsqrt.default" if call.op == _MUL else "aten.sqrt.default"
    for index in (0, 1) if call.op == _MUL else (0,):
        scale = made_by(made, call.args[1 - index], root)
        total = scale and made_by(
            made, scale.args[0], "aten.add.Tensor", "aten.add.Scalar"
        )
        eps = total.args[1] if total and total.args[2:] == [1] else None
        if not total or not isinstance(eps, float):
            continue
        x = _variance_of(graph, made, total.args[0])
        centred, weight = _weighted(graph, made, call.args[index])
        if x is None or _centred(graph, made, centred) != x:
            continue
        value = graph.values[x.id]
        same = value.shape == graph.values[call.outputs[0]].shape
        size = value.shape[-1]
        if same and value.dtype is DType.FLOAT32 and isinstance(size, int):
            return LayerNorm(x, [size], weight, None, eps, cudnn_enable=False)
    return None


def _weighted(
    graph: ir.Graph, made: Producers, arg: ir.Arg
) -> tuple[ir.Arg, ir.Ref | None]:
    """y and w of y * w, with w[n] along the last dimension; else the argument."""
    product = made_by(made, arg, _MUL)
    for index in (0, 1) if product else ():
        assert product is not None
        y, weight = product.args[index], product.args[1 - index]
        if isinstance(y, ir.Ref) and isinstance(weight, ir.Ref):
            last = graph.values[y.id].shape[-1:]
            if graph.values[weight.id].shape == last and made_by(made, y, _SUB):
                return y, weight
    return arg, None


def _centred(graph: ir.Graph, made: Producers, arg: ir.Arg) -> ir.Ref | None:
    """x of x - mean(x)."""
    difference = made_by(made, arg, _SUB)
    if difference is None or difference.args[2:] != [1]:
        return None
    x = difference.args[0]
    mean = made_as(made, difference.args[1], Mean)
    if mean is None or mean.x != x:
        return None
    return mean.x if _over_last(graph, mean.x, mean.dim, mean.keepdim) else None


def _variance_of(graph: ir.Graph, made: Producers, arg: ir.Arg) -> ir.Ref | None:
    """x of mean((x - mean(x)) ** 2), or of its variance without a correction."""
    known = made_by(made, arg, "aten.var.correction", "aten.var.dim")
    if known is not None:
        x, dims, correction, keep = known.args
        assert isinstance(x, ir.Ref)
        plain = correction in (0, False) and _over_last(graph, x, dims, keep)
        return x if plain else None
    mean = made_as(made, arg, Mean)
    if mean is None:
        return None
    square = made_by(
        made, mean.x, "aten.pow.Tensor_Scalar", "aten.square.default", _MUL
    )
    if square is None:
        return None
    if square.op == "aten.pow.Tensor_Scalar" and square.args[1] != 2:
        return None
    centre = _centred(graph, made, square.args[0])
    if square.op == _MUL and _centred(graph, made, square.args[1]) != centre:
        return None
    if centre is None or not _over_last(graph, centre, mean.dim, mean.keepdim):
        return None
    return centre


def _over_last(graph: ir.Graph, x: ir.Ref, dim: object, keepdim: object) -> bool:
    """Whether a reduction's dimensions are the last one, and it is kept."""
    rank = len(graph.values[x.id].shape)
    return dim in ([-1], [rank - 1]) and keepdim is True


def _softmax(graph: ir.Graph, made: Producers, call: ir.Call) -> Softmax | None:
    """The softmax that a quotient is."""
    above, below = call.args[:2]
    total = made_as(made, below, Sum)
    power = made_by(made, above, "aten.exp.default")
    difference = power and made_by(made, power.args[0], _SUB)
    if call.op != _DIV or not total or not difference or total.x != above:
        return None
    most = made_as(made, difference.args[1], Amax)
    if most is None or difference.args != [most.x, difference.args[1], 1]:
        return None
    if most.dim != total.dim or len(most.dim) != 1:
        return None
    same = graph.values[most.x.id].dtype is DType.FLOAT32
    kept = most.keepdim and total.keepdim
    return Softmax(most.x, most.dim[0], False) if same and kept else None
