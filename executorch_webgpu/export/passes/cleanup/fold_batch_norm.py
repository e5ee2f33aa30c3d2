"""Batch norm after a convolution or linear layer becomes part of its weights.

norm(conv(x)) = conv(x) * s + t for every channel, with s = weight / sqrt(variance
+ eps) and t = bias - mean * s: the weights take s, the bias takes s and t. New
constants are computed in float64. Layers whose result is used elsewhere, and norms
with statistics that are no constants, stay as they are.
"""

from __future__ import annotations

import torch

from .... import ir
from ...constants import Constants
from ...torch_dtypes import to_torch
from ..rewrite import producers

_NORM = "aten._native_batch_norm_legit_no_training.default"
_CONV = "aten.convolution.default"
_LINEAR = "aten.linear.default"


def run(graph: ir.Graph, constants: Constants) -> None:
    for norm in [call for call in graph.calls if call.op == _NORM and not call.post]:
        source = norm.args[0]
        layer = producers(graph).get(source.id) if isinstance(source, ir.Ref) else None
        if layer is not None and _foldable(graph, constants, layer, norm):
            _fold(graph, constants, layer, norm)


def _foldable(
    graph: ir.Graph, constants: Constants, layer: ir.Call, norm: ir.Call
) -> bool:
    value = layer.outputs[0]
    uses = ir.uses(graph)
    if layer.post or uses[value] != 1 or any(uses[v] for v in norm.outputs[1:]):
        return False
    # A norm's channels are dimension 1, a linear layer's the last.
    rank = len(graph.values[value].shape)
    if layer.op != _CONV and not (layer.op == _LINEAR and rank == 2):
        return False
    given = [*layer.args[1:3], *norm.args[1:5]]
    return all(arg is None or constants.of(arg) is not None for arg in given)


def _fold(graph: ir.Graph, constants: Constants, layer: ir.Call, norm: ir.Call) -> None:
    def wide(arg: ir.Arg) -> torch.Tensor | None:
        tensor = constants.of(arg)
        return None if tensor is None else tensor.double()

    gain, shift, mean, variance = (wide(arg) for arg in norm.args[1:5])
    assert mean is not None
    assert variance is not None
    eps = norm.args[6]
    assert isinstance(eps, (int, float))
    scale = torch.rsqrt(variance + eps)
    if gain is not None:
        scale = scale * gain
    weight, bias = wide(layer.args[1]), wide(layer.args[2])
    assert weight is not None
    offset = mean if bias is None else mean - bias
    moved = -offset * scale if shift is None else shift - offset * scale
    layer.args[1] = _replaced(constants, layer.args[1], _scaled(layer, weight, scale))
    like = layer.args[2] if layer.args[2] is not None else layer.args[1]
    layer.args[2] = _replaced(constants, like, moved)
    layer.outputs = norm.outputs[:1]
    graph.calls.remove(norm)


def _scaled(layer: ir.Call, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The weights with every output channel's multiplied by its scale."""
    if layer.op == _CONV and layer.args[6]:
        groups = layer.args[8]
        assert isinstance(groups, int)
        inputs, filters = weight.shape[:2]
        split = weight.reshape(groups, inputs // groups, filters, -1)
        return (split * scale.reshape(groups, 1, filters, 1)).reshape(weight.shape)
    return weight * scale.reshape(-1, *[1] * (weight.dim() - 1))


def _replaced(constants: Constants, like: ir.Arg, tensor: torch.Tensor) -> ir.Ref:
    """A new constant in the type of another."""
    assert isinstance(like, ir.Ref)
    old = constants.graph.values[like.id]
    return constants.add(f"{old.name}_folded", tensor.to(to_torch(old.dtype)))
