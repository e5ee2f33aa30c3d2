"""Calls of constants, evaluated by torch at export."""

from __future__ import annotations

from typing import Any

import torch

from ... import ir
from ...ir.dtypes import DType
from ...plan import registry
from ...plan.registry import View
from ..constants import Constants
from ..torch_dtypes import to_torch
from .rewrite import Producers


def is_view(call: ir.Call) -> bool:
    """Whether a call only shows its operand's elements in another way."""
    return registry.view_of(call.op) is not View.NONE


def function_of(name: str) -> Any:
    """A callable that takes arguments in schema order and gives a list."""
    namespace, base, overload = name.split(".", 2)
    if name == "dim_order_ops._to_dim_order_copy.default":
        return lambda args: [args[0].to(args[1] or args[0].dtype)]
    if namespace != "aten" or base.startswith(("empty", "new_empty")):
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


def applied(call: ir.Call, source: torch.Tensor) -> torch.Tensor | None:
    """The result of a call whose only tensor is `source`; None if it is not known."""
    function = function_of(call.op)
    if function is None or call.post or not is_static(call.args):
        return None
    result: torch.Tensor = function([source, *map(plain, call.args[1:])])[0]
    return result


def evaluate(constants: Constants, made: Producers, arg: ir.Ref) -> torch.Tensor | None:
    """A constant, or what views make of one; None if it is neither."""
    tensor, call = constants.of(arg), made.get(arg.id)
    if tensor is not None:
        return tensor
    if call is None or len(call.outputs) != 1 or not is_view(call):
        return None
    source = evaluate(constants, made, ir.Ref(next(ir.call_inputs(call))))
    return None if source is None else applied(call, source)


def is_static(args: list[ir.Arg]) -> bool:
    """Whether no argument depends on a dynamic size."""
    return not any(isinstance(arg, ir.Expr) for arg in ir.leaves(args))


def plain(arg: ir.Arg) -> Any:
    """An argument that is no tensor, as torch takes it."""
    return to_torch(arg) if isinstance(arg, DType) else arg
