"""A delegate's bytes -> a graph that planning can trust.

After `ir/verify.py` has said of the graph what can be said of any, its calls must have
what their ops take: arguments as the parameters of the op function are annotated, and
an epilogue of elementwise ops only where there is one.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from .. import ir
from ..errors import InvalidBlob
from ..ir import serialize
from ..ir.dtypes import DType
from ..ir.expressions import cut
from ..ir.verify import verify
from . import pointwise, registry
from .output import Output
from .tensor import DataInt, Tensor

Accepts = Callable[[ir.Arg], bool]


def load_graph(blob: memoryview | bytes) -> ir.Graph:
    """The graph in a delegate's bytes, which planning can trust; or InvalidBlob."""
    graph = serialize.read(blob)
    check_graph(graph)
    return graph


def check_graph(graph: ir.Graph) -> None:
    """Raises InvalidBlob unless a graph is sound and its calls are as their ops say."""
    verify(graph)
    for number, call in enumerate(graph.calls):
        found = registry.known(call.op)
        who = f"call {number} ({call.op})"
        signature = signature_of(found.function)
        _check_arguments(who, signature, call.args)
        count = len(call.outputs)
        if not (signature.one if count == 1 else signature.several):
            raise InvalidBlob(f"{who}: must have its op's outputs, got {count}")
        _check_steps(who, found, call)


@dataclass(frozen=True)
class Parameter:
    """A parameter of an op function, and what it may be given."""

    name: str
    annotation: str
    accepts: Accepts


@dataclass(frozen=True)
class Signature:
    """What an op function can be called with."""

    parameters: tuple[Parameter, ...]
    required: int
    rest: Parameter | None  # for any number of further arguments
    # Whether it makes one output, and whether it makes several.
    one: bool
    several: bool


@functools.cache
def signature_of(function: registry.OpFunction) -> Signature:
    hints = get_type_hints(function)
    parameters, required, rest = [], 0, None
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY:
            continue
        hint = hints[parameter.name]
        made = Parameter(parameter.name, str(parameter.annotation), _accepts(hint))
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = made
        else:
            parameters.append(made)
            required += parameter.default is parameter.empty
    out = set(_alternatives(hints["out"]))
    return Signature(
        tuple(parameters), required, rest, Output in out, list[Output] in out
    )


def _check_arguments(who: str, signature: Signature, args: Sequence[ir.Arg]) -> None:
    known = len(signature.parameters)
    if len(args) < signature.required or (len(args) > known and not signature.rest):
        raise InvalidBlob(
            f"{who}: must have {signature.required} to {known} arguments,"
            f" got {len(args)}"
        )
    for position, arg in enumerate(args):
        at = signature.parameters[position] if position < known else signature.rest
        assert at is not None
        if not at.accepts(arg):
            raise InvalidBlob(
                f"{who}: argument {position} ({at.name}) must be {at.annotation},"
                f" got {cut(str(arg))}"
            )


def _check_steps(who: str, found: registry.Op, call: ir.Call) -> None:
    is_program = call.op == pointwise.PROGRAM
    has_epilogue = found.fusible or found.gated
    if call.post and (pointwise.is_formula(call) or not (has_epilogue or is_program)):
        raise InvalidBlob(f"{who}: must have no steps, got {len(call.post)}")
    if not call.post and (found.gated or is_program):
        raise InvalidBlob(f"{who}: must have steps, got none")
    # Local(-1) and Local(-2) are what a kernel made.
    least = 0 if is_program else -2 if found.gated else -1
    for number, step in enumerate(call.post):
        if step.op not in pointwise.FORMULAS:
            raise InvalidBlob(
                f"{who}: step {number} must be an elementwise op, got {step.op}"
            )
        for leaf in ir.leaves(step.args):
            if isinstance(leaf, ir.Local) and leaf.step < least:
                raise InvalidBlob(
                    f"{who}: step {number} must read what there is, got {leaf}"
                )


def _alternatives(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        yield from get_args(annotation)
    else:
        yield annotation


def _accepts(annotation: Any) -> Accepts:
    """Whether an argument, once it is resolved, is what an annotation says."""
    plain: list[Accepts] = []
    for each in _alternatives(annotation):
        if get_origin(each) in (list, Sequence):
            plain.append(_list_of(_accepts(get_args(each)[0])))
        else:
            plain.append(_PLAIN[each])
    if len(plain) == 1:
        return plain[0]
    return lambda arg: any(accepts(arg) for accepts in plain)


def _list_of(accepts: Accepts) -> Accepts:
    return lambda arg: isinstance(arg, list) and all(map(accepts, arg))


# A DType is an int to Python, and so is a bool; an expression becomes an int, or a
# DataInt where the op can read one.
_PLAIN: dict[Any, Accepts] = {
    Any: lambda arg: True,
    object: lambda arg: True,
    Tensor: lambda arg: isinstance(arg, ir.Ref),
    DataInt: lambda arg: isinstance(arg, ir.Expr),
    DType: lambda arg: isinstance(arg, DType),
    bool: lambda arg: isinstance(arg, bool),
    int: lambda arg: type(arg) in (int, ir.Expr),
    float: lambda arg: type(arg) in (bool, int, float, ir.Expr),
    str: lambda arg: isinstance(arg, str),
    types.NoneType: lambda arg: arg is None,
}
