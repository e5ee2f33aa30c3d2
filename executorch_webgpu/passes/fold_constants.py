"""Computes at export what depends on constants alone.

Views are left alone: they cost nothing and share the constant's bytes. A result
larger than what it was made from is left for the GPU too, so that the file does
not grow.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from .. import ir, registry
from ..builder import ConstantData, dtype_of
from ..dtypes import SUPPORTED, DType

# Bytes of a result that is worth storing whatever it was made from.
_SMALL = 16384


def run(graph: ir.Graph, data: ConstantData) -> None:
    kept = []
    for call in graph.calls:
        if not _fold(graph, data, call):
            kept.append(call)
    graph.calls = kept


def _fold(graph: ir.Graph, data: ConstantData, call: ir.Call) -> bool:
    inputs = [graph.values[index] for index in ir.call_inputs(call)]
    outputs = [graph.values[index] for index in call.outputs]
    if not all(value.is_constant for value in inputs):
        return False
    if any(isinstance(dim, str) for value in outputs for dim in value.shape):
        return False
    made, given = (
        sum(math.prod(value.bound) * value.dtype.size for value in values)
        for values in (outputs, inputs)
    )
    found = registry.find(call.op)
    views = found is not None and "views" in found.function.__module__
    if views or made > max(given, _SMALL) or call.post:
        return False
    function = _function(call.op)
    if function is None or not _static(call.args):
        return False
    arguments = [_argument(graph, data, arg) for arg in call.args]
    results = function(arguments)
    for index, result in zip(call.outputs, results):
        value = graph.values[index]
        if dtype_of(result) is not value.dtype or value.dtype not in SUPPORTED:
            return False
        value.data_key = data.key(result)
    return True


def _function(name: str) -> Any:
    """A callable that takes arguments in schema order and gives a list."""
    namespace, base, overload = name.split(".", 2)
    if name == "dim_order_ops._to_dim_order_copy.default":
        return lambda args: [args[0].to(args[1] or args[0].dtype)]
    if namespace != "aten":
        return None
    found = getattr(getattr(torch.ops.aten, base, None), overload, None)
    if found is None or torch.Tag.nondeterministic_seeded in found.tags:
        return None

    def call(args: list[Any]) -> list[torch.Tensor]:
        schema = found._schema.arguments
        positional = [a for a, s in zip(args, schema) if not s.kwarg_only]
        named = {s.name: a for a, s in zip(args, schema) if s.kwarg_only}
        result = found(*positional, **named)
        return list(result) if isinstance(result, (tuple, list)) else [result]

    return call


def _static(arg: ir.Arg) -> bool:
    if isinstance(arg, list):
        return all(_static(item) for item in arg)
    return not isinstance(arg, ir.Expr)


def _argument(graph: ir.Graph, data: ConstantData, arg: ir.Arg) -> Any:
    if isinstance(arg, ir.Ref):
        return data.tensors[graph.values[arg.id].data_key]
    if isinstance(arg, DType):
        return getattr(torch, arg.label)
    if isinstance(arg, list):
        return [_argument(graph, data, item) for item in arg]
    return arg
