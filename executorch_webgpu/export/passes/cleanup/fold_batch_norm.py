"""Batch norm after a convolution or linear layer becomes part of its weights.

norm(conv(x)) = conv(x) * s + t for every channel, with s = weight / sqrt(variance
+ eps) and t = bias - mean * s: the weights take s, the bias takes s and t. New
constants are computed in float64. Layers whose result is used elsewhere, and norms
with statistics that are no constants, stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from .... import ir
from ....ir.signatures import BatchNorm, Convolution, Linear
from ...constants import Constants
from ...torch_dtypes import to_torch
from ..rewrite import producers

_LAYERS = (Convolution, Linear)


def run(graph: ir.Graph, constants: Constants) -> None:
    made, uses = producers(graph), ir.uses(graph)
    for call in list(graph.calls):
        if call.op == BatchNorm.NAME and not call.post:
            norm = BatchNorm.of(call)
            layer = made.get(norm.x.id)
            if layer is not None and _foldable(graph, constants, uses, layer, call):
                _fold(constants, layer, norm)
                layer.outputs = call.outputs[:1]
                made[layer.outputs[0]] = layer
                graph.calls.remove(call)


def _layer(call: ir.Call) -> Convolution | Linear | None:
    return next((kind.of(call) for kind in _LAYERS if call.op == kind.NAME), None)


def _foldable(
    graph: ir.Graph,
    constants: Constants,
    uses: dict[int, int],
    call: ir.Call,
    after: ir.Call,
) -> bool:
    layer, norm = _layer(call), BatchNorm.of(after)
    if call.post or uses[norm.x.id] != 1 or any(uses[v] for v in after.outputs[1:]):
        return False
    # A norm's channels are dimension 1, a linear layer's the last.
    rank = len(graph.values[norm.x.id].shape)
    if layer is None or (isinstance(layer, Linear) and rank != 2):
        return False
    given = (layer.weight, layer.bias, norm.weight, norm.bias, norm.mean, norm.variance)
    return all(arg is None or constants.of(arg) is not None for arg in given)


def _fold(constants: Constants, call: ir.Call, norm: BatchNorm) -> None:
    def wide(arg: ir.Ref | None) -> torch.Tensor | None:
        tensor = constants.of(arg)
        return None if tensor is None else tensor.double()

    layer = _layer(call)
    gain, shift, mean, variance = map(
        wide, (norm.weight, norm.bias, norm.mean, norm.variance)
    )
    assert layer is not None
    assert mean is not None
    assert variance is not None
    scale = torch.rsqrt(variance + norm.eps)
    if gain is not None:
        scale = scale * gain
    weight, bias = wide(layer.weight), wide(layer.bias)
    assert weight is not None
    offset = mean if bias is None else mean - bias
    moved = -offset * scale if shift is None else shift - offset * scale
    scaled = _replaced(constants, layer.weight, _scaled(layer, weight, scale))
    added = _replaced(constants, layer.bias or scaled, moved)
    replace(layer, weight=scaled, bias=added).write_to(call)


def _scaled(
    layer: Convolution | Linear, weight: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    """The weights with every output channel's multiplied by its scale."""
    if isinstance(layer, Convolution) and layer.transposed:
        inputs, filters = weight.shape[:2]
        split = weight.reshape(layer.groups, inputs // layer.groups, filters, -1)
        by_filter = scale.reshape(layer.groups, 1, filters, 1)
        return (split * by_filter).reshape(weight.shape)
    return weight * scale.reshape(-1, *[1] * (weight.dim() - 1))


def _replaced(constants: Constants, like: ir.Ref, tensor: torch.Tensor) -> ir.Ref:
    """A new constant in the type of another."""
    old = constants.graph.values[like.id]
    return constants.add(f"{old.name}_folded", tensor.to(to_torch(old.dtype)))
