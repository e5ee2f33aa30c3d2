"""RMS norm as one dispatch: PyTorch's op, and the formula written out.

The formula is x * rsqrt(mean(x * x) + eps), perhaps with conversions of x and of
the result, and perhaps times a weight.
"""

from __future__ import annotations

from dataclasses import replace

from .... import ir
from ....ir.dtypes import DType
from ....ir.signatures import AtenRmsNorm, Mean, RmsNorm
from ...constants import Constants
from ..rewrite import Producers, cast_of, made_as, made_by, producers


def run(graph: ir.Graph, constants: Constants) -> None:
    made = producers(graph)
    for call in graph.calls:
        if call.post:
            continue
        if call.op == AtenRmsNorm.NAME:
            given = AtenRmsNorm.of(call)
            if len(given.normalized_shape) == 1:
                RmsNorm(given.x, given.weight, given.eps).write_to(call)
        elif call.op == "aten.mul.Tensor":
            _written_out(graph, constants, made, call)
    _take_weights(graph)


def _written_out(
    graph: ir.Graph, constants: Constants, made: Producers, call: ir.Call
) -> None:
    for index in (0, 1):
        x = call.args[index]
        root = made_by(made, call.args[1 - index], "aten.rsqrt.default")
        total = (
            made_by(made, root.args[0], "aten.add.Tensor", "aten.add.Scalar")
            if root
            else None
        )
        if total is None or not isinstance(x, ir.Ref):
            continue
        eps = constants.number(total.args[1])
        mean = made_as(made, total.args[0], Mean)
        if eps is None or mean is None or (len(total.args) > 2 and total.args[2] != 1):
            continue
        rank = len(graph.values[x.id].shape)
        if mean.dim not in ([-1], [rank - 1]) or not mean.keepdim:
            continue
        if _squared(constants, made, mean.x) == x:
            RmsNorm(_narrow(graph, made, x), None, eps).write_to(call)
            return


def _narrow(graph: ir.Graph, made: Producers, x: ir.Ref) -> ir.Ref:
    """What x was widened from, if it was: the kernel computes in float32 anyway."""
    cast = cast_of(made, x)
    source = cast.args[0] if cast else None
    if not isinstance(source, ir.Ref):
        return x
    types = graph.values[source.id].dtype, graph.values[x.id].dtype
    return source if types == (DType.FLOAT16, DType.FLOAT32) else x


def _squared(constants: Constants, made: Producers, arg: ir.Arg) -> ir.Arg:
    """x of x * x, of x ** 2 or of square(x)."""
    square = made_by(made, arg, "aten.square.default")
    if square is not None:
        return square.args[0]
    product = made_by(made, arg, "aten.mul.Tensor")
    if product is not None and product.args[0] == product.args[1]:
        return product.args[0]
    power = made_by(made, arg, "aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor")
    if power is not None and constants.number(power.args[1]) == 2.0:
        return power.args[0]
    return None


def _take_weights(graph: ir.Graph) -> None:
    """norm(x) * weight as one op, where nothing else reads norm(x)."""
    made, reads = producers(graph), ir.uses(graph)
    for call in graph.calls:
        if call.op != "aten.mul.Tensor" or call.post:
            continue
        for index in (0, 1):
            normed, weight = call.args[index], call.args[1 - index]
            norm = made_as(made, normed, RmsNorm)
            if norm is None or norm.weight or not isinstance(weight, ir.Ref):
                continue
            assert isinstance(normed, ir.Ref)
            source, scale = graph.values[normed.id], graph.values[weight.id]
            last = source.shape[-1:]
            same = graph.values[call.outputs[0]].dtype is source.dtype
            if reads[normed.id] == 1 and scale.shape == last and same:
                replace(norm, weight=weight).write_to(call)
                break
