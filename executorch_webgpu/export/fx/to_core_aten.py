"""Rewrites ops that lowering does not accept into core ops, or into twins.

Enters an exported program before it is decomposed; leaves another one.
Whatever a backend can do, ExecuTorch's verifier accepts no op with several results
outside core ATen in an edge program, no histogram, no operands of several types and no
choice between sizes; and its split makes dynamic sizes static. A node keeps its name,
because the program's signature refers to it.
"""

from __future__ import annotations

import copy
import itertools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import is_concrete_int
from torch.fx.node import map_arg

from ..verifier_ops import TWINS
from . import histogram, program_constants, random_numbers
from .control_flow import graph_modules
from .rewriting import arguments, call_before

_aten = torch.ops.aten

# What a node's arguments, by name, become: another op, its args and its kwargs.
_Rewrite = Callable[[dict[str, Any]], tuple[Any, tuple[Any, ...], dict[str, Any]]]


def _spread(op: Any) -> _Rewrite:
    def rewrite(a: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        # The older overloads have `unbiased` instead of `correction`.
        correction = a["correction"] if "correction" in a else int(a["unbiased"])
        rest = {"correction": correction, "keepdim": a.get("keepdim", False)}
        return op, (a["self"], a.get("dim")), rest

    return rewrite


def _extreme(op: Any) -> _Rewrite:
    def rewrite(a: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        dims = [] if a["dim"] is None else [a["dim"]]
        return op, (a["self"], dims, a["keepdim"]), {}

    return rewrite


def _mean(a: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    return _aten.mean.dim, (a["self"], a.get("dim"), a.get("keepdim", False)), {}


# An op whose results become ops of their own, each replacing a getitem.
_VAR_MEAN = (_spread(_aten.var.correction), _mean)
_STD_MEAN = (_spread(_aten.std.correction), _mean)
_SPLIT: dict[Any, tuple[_Rewrite, ...]] = {
    _aten.var_mean.default: _VAR_MEAN,
    _aten.var_mean.dim: _VAR_MEAN,
    _aten.var_mean.correction: _VAR_MEAN,
    _aten.std_mean.default: _STD_MEAN,
    _aten.std_mean.dim: _STD_MEAN,
    _aten.std_mean.correction: _STD_MEAN,
    _aten.aminmax.default: (
        _extreme(_aten.amin.default),
        _extreme(_aten.amax.default),
    ),
}
# An op, and one with the same results at inference: our sort is always stable.
_SAME: dict[Any, _Rewrite] = {
    _aten.sort.stable: lambda a: (
        _aten.sort.default,
        (a["self"], a["dim"], a["descending"]),
        {},
    ),
    _aten._native_batch_norm_legit.default: lambda a: (
        _aten._native_batch_norm_legit_no_training.default,
        tuple(value for name, value in a.items() if name != "training"),
        {},
    ),
    _aten._is_all_true.default: lambda a: (_aten.all.default, (a["self"],), {}),
    _aten._is_any_true.default: lambda a: (_aten.any.default, (a["self"],), {}),
}


# Ops that cut a tensor along a dimension.
_CUTS = (_aten.split.Tensor, _aten.split_with_sizes.default, _aten.chunk.default)


def rewrite(program: ExportedProgram, runs: Callable[[Node], bool]) -> ExportedProgram:
    """The program with core ops where it had these.

    Only what `runs` on the GPU gets a twin: the CPU has no kernel for twins.
    """
    bodies = graph_modules(program.graph_module)
    if any(_is_rewritten(node) for body in bodies for node in body.module.graph.nodes):
        return _rewritten(program, runs)
    made = copy.copy(program)
    # ExecuTorch removes from these what a delegate takes; the caller keeps his.
    made._constants = dict(program.constants)
    return made


def _rewritten(
    program: ExportedProgram, runs: Callable[[Node], bool]
) -> ExportedProgram:
    twins = {
        (body.path, node.name)
        for body in graph_modules(program.graph_module)
        for node in body.module.graph.nodes
        if node.target in TWINS and runs(node)
    }
    made = program_constants.copied(program)
    for body in graph_modules(made.graph_module):
        for node in list(body.module.graph.nodes):
            if (body.path, node.name) in twins:
                node.target = TWINS[node.target]
            else:
                _rewrite_node(made, node)
        body.module.recompile()
    return made


def _rewrite_node(program: ExportedProgram, node: Node) -> None:
    if node.target in _SAME and not arguments(node).get("training"):
        _become(node, _SAME[node.target], node)
        return
    if node.target in _PREPARED:
        _PREPARED[node.target](program, node)
        return
    rules = _slices(node) if node.target in _CUTS else _SPLIT.get(node.target, ())
    for user in list(node.users) if rules else ():
        index = user.args[1]
        if user.target is operator.getitem and isinstance(index, int):
            _become(user, rules[index], node)
    if rules and not node.users:
        node.graph.erase_node(node)


def _is_rewritten(node: Node) -> bool:
    if node.target is _aten.cat.default:
        inputs = arguments(node)["tensors"]
        return len({x.meta["val"].dtype for x in inputs}) > 1
    known: tuple[Any, ...] = (_SAME, _SPLIT, _CUTS, _PREPARED, TWINS)
    return any(node.target in ops for ops in known)


def _sort_first(program: ExportedProgram, node: Node) -> None:
    """The k-th value and its index as elements of sorted rows."""
    given = arguments(node)
    k, dim = given["k"], given["dim"]
    if not isinstance(k, int) or not given["self"].meta["val"].dim():
        return
    rows = call_before(node, _aten.sort.default, given["self"], dim, False)
    for user in list(node.users):
        whole = call_before(node, operator.getitem, rows, user.args[1])
        user.target, user.args = _aten.select.int, (whole, dim, k - 1)
        if given["keepdim"]:
            user.target, user.args = _aten.slice.Tensor, (whole, dim, k - 1, k)
    node.graph.erase_node(node)


def _promote_first(program: ExportedProgram, node: Node) -> None:
    """Converts inputs of several types to the type of the result."""
    dtype, inputs = node.meta["val"].dtype, arguments(node)["tensors"]
    promoted = [
        x
        if x.meta["val"].dtype is dtype
        else call_before(node, _aten._to_copy.default, x, dtype=dtype)
        for x in inputs
    ]
    node.args = (promoted, *node.args[1:])


def _norm_of_difference(program: ExportedProgram, node: Node) -> None:
    given = arguments(node)
    difference = call_before(node, _aten.sub.Tensor, given["self"], given["other"])
    node.target, node.args = _aten.linalg_vector_norm.default, (difference, given["p"])


def _of_storage(program: ExportedProgram, node: Node) -> None:
    """as_strided of the tensor that owns the storage, in its order: an edge program has
    row-major copies where there were views, to which the strides would not apply."""
    given = arguments(node)
    x: Node = given["self"]
    start = given["storage_offset"]
    start = x.meta["val"].storage_offset() if start is None else start
    storage = x.meta["val"].untyped_storage()
    while x.op == "call_function" and _shares(x.all_input_nodes[:1], storage):
        x = x.all_input_nodes[0]
    owner = x.meta["val"]
    order = sorted(range(owner.dim()), key=owner.stride().__getitem__, reverse=True)
    if owner.storage_offset() or not owner.permute(order).is_contiguous():
        return
    if order != list(range(owner.dim())):
        x = call_before(node, _aten.permute.default, x, order)
    node.args, node.kwargs = (x, given["size"], given["stride"], start), {}


def _shares(sources: list[Node], storage: Any) -> bool:
    value = sources[0].meta.get("val") if sources else None
    if not isinstance(value, torch.Tensor):
        return False
    # A storage has a new Python object whenever it is asked for.
    return bool(value.untyped_storage()._cdata == storage._cdata)


def _as_decided(program: ExportedProgram, node: Node) -> None:
    """Replaces a choice that `torch._check` has decided by its result.

    It and its condition then serve assertions alone, of which ExecuTorch keeps none.
    """
    number = node.meta["val"]
    if not is_concrete_int(number):
        return
    condition = node.args[0]
    for user in list(node.users):
        user.args = map_arg(user.args, lambda a: int(number) if a is node else a)
    node.graph.erase_node(node)
    if isinstance(condition, Node) and not condition.users:
        condition.graph.erase_node(condition)


# Ops before which other calls have to be inserted.
_PREPARED: dict[Any, Callable[[ExportedProgram, Node], None]] = {
    _aten.as_strided.default: _of_storage,
    _aten.kthvalue.default: _sort_first,
    _aten.cat.default: _promote_first,
    _aten.dist.default: _norm_of_difference,
    _aten.histc.default: histogram.rewrite,
    **dict.fromkeys(random_numbers.CORE, random_numbers.rewrite),
    torch.sym_ite: _as_decided,
}


def _slices(node: Node) -> tuple[_Rewrite, ...]:
    """A slice for each result; none if a size is not known."""
    dim = arguments(node)["dim"]
    sizes = [result.shape[dim] for result in node.meta["val"]]
    if not all(isinstance(size, int) for size in sizes):
        return ()
    ends = list(itertools.accumulate(sizes))

    def cut(start: int, end: int) -> _Rewrite:
        return lambda a: (_aten.slice.Tensor, (a["self"], dim, start, end), {})

    return tuple(cut(end - size, end) for size, end in zip(sizes, ends))


def _become(node: Node, rule: _Rewrite, source: Node) -> None:
    """Turns `node` into what the rule makes of `source`'s arguments."""
    node.target, node.args, node.kwargs = rule(arguments(source))
