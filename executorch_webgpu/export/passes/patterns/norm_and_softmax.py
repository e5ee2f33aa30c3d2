"""Layer norm and softmax written out become the ops for them.

- (x - mean) * rsqrt(variance + eps), or divided by the root, with the variance as the
  mean of squares or as `var`, perhaps with x - mean times a weight first: six launches
  and more that are one. A weight and a bias that follow are fused as into any kernel.
- exp(x - max) / sum: four launches that are one.

Both subtract first, as the kernels do, so nothing overflows that did not before. Only
float32: what is rounded between the steps of a smaller type is not what the op gives.
"""

from __future__ import annotations

from .... import ir
from ....ir.dtypes import DType
from ...constants import Constants
from ..rewrite import Producers, made_by, producers

_MUL, _DIV, _SUB = "aten.mul.Tensor", "aten.div.Tensor", "aten.sub.Tensor"


def run(graph: ir.Graph, constants: Constants) -> None:
    made = producers(graph)
    for call in graph.calls:
        if call.post or call.op not in (_MUL, _DIV):
            continue
        if graph.values[call.outputs[0]].dtype is not DType.FLOAT32:
            continue
        args = _layer_norm(graph, made, call)
        if args is not None:
            call.op, call.args = "aten.layer_norm.default", args
            continue
        args = _softmax(graph, made, call)
        if args is not None:
            call.op, call.args = "aten._softmax.default", args


def _layer_norm(graph: ir.Graph, made: Producers, call: ir.Call) -> list[ir.Arg] | None:
    """The arguments of the layer norm that a product or quotient is."""
    root = "aten.rsqrt.default" if call.op == _MUL else "aten.sqrt.default"
    for place in (0, 1) if call.op == _MUL else (0,):
        scale = made_by(made, call.args[1 - place], root)
        total = scale and made_by(
            made, scale.args[0], "aten.add.Tensor", "aten.add.Scalar"
        )
        if not total or not isinstance(total.args[1], float) or total.args[2:] != [1]:
            continue
        x = _variance_of(graph, made, total.args[0])
        centred, weight = _weighted(graph, made, call.args[place])
        if x is None or _centred(graph, made, centred) != x:
            continue
        value = graph.values[x.id]
        same = value.shape == graph.values[call.outputs[0]].shape
        if same and value.dtype is DType.FLOAT32 and isinstance(value.shape[-1], int):
            return [x, [value.shape[-1]], weight, None, total.args[1], False]
    return None


def _weighted(
    graph: ir.Graph, made: Producers, arg: ir.Arg
) -> tuple[ir.Arg, ir.Ref | None]:
    """y and w of y * w, with w[n] along the last dimension; else the argument."""
    product = made_by(made, arg, _MUL)
    for place in (0, 1) if product else ():
        assert product is not None
        y, weight = product.args[place], product.args[1 - place]
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
    mean = made_by(made, difference.args[1], "aten.mean.dim")
    if mean is None or mean.args[0] != x or not isinstance(x, ir.Ref):
        return None
    return x if _over_last(graph, x, mean.args[1:3]) else None


def _variance_of(graph: ir.Graph, made: Producers, arg: ir.Arg) -> ir.Ref | None:
    """x of mean((x - mean(x)) ** 2), or of its variance without a correction."""
    known = made_by(made, arg, "aten.var.correction", "aten.var.dim")
    if known is not None:
        x, dims, correction, keep = known.args
        plain = correction in (0, False) and _over_last(graph, x, [dims, keep])
        return x if plain and isinstance(x, ir.Ref) else None
    mean = made_by(made, arg, "aten.mean.dim")
    square = mean and made_by(
        made, mean.args[0], "aten.pow.Tensor_Scalar", "aten.square.default", _MUL
    )
    if not mean or not square:
        return None
    if square.op == "aten.pow.Tensor_Scalar" and square.args[1] != 2:
        return None
    x = _centred(graph, made, square.args[0])
    if square.op == _MUL and _centred(graph, made, square.args[1]) != x:
        return None
    return x if x is not None and _over_last(graph, x, mean.args[1:3]) else None


def _over_last(graph: ir.Graph, x: ir.Arg, args: list[ir.Arg]) -> bool:
    """Whether a reduction's dimensions are the last one, and it is kept."""
    rank = len(graph.values[x.id].shape) if isinstance(x, ir.Ref) else 0
    return args[0] in ([-1], [rank - 1]) and args[1] is True


def _softmax(graph: ir.Graph, made: Producers, call: ir.Call) -> list[ir.Arg] | None:
    """The arguments of the softmax that a quotient is."""
    above, below = call.args[:2]
    total = made_by(made, below, "aten.sum.dim_IntList")
    power = made_by(made, above, "aten.exp.default")
    difference = power and made_by(made, power.args[0], _SUB)
    if call.op != _DIV or not total or not difference or total.args[0] != above:
        return None
    x = difference.args[0]
    most = made_by(made, difference.args[1], "aten.amax.default")
    if most is None or most.args[0] != x or difference.args[2:] != [1]:
        return None
    dims = most.args[1]
    if dims != total.args[1] or not isinstance(dims, list) or len(dims) != 1:
        return None
    same = isinstance(x, ir.Ref) and graph.values[x.id].dtype is DType.FLOAT32
    kept = most.args[2] is True and total.args[2] is True
    return [x, dims[0], False] if same and kept else None
