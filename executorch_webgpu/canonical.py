"""Ops that lowering refuses as core ops, or as twins, that it accepts.

Enters an exported program before it is decomposed; leaves another one.
ExecuTorch's verifier accepts no op of several results outside core ATen in an edge
program, whatever a backend can do, its split makes dynamic sizes static, and some
ops nothing decomposes. A node keeps
its name, because the program's signature refers to it.
"""

from __future__ import annotations

import copy
import itertools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from .programs import graph_modules, with_module
from .twins import TWINS

_aten = torch.ops.aten

# What a node's arguments, by name, become: another op, its args and its kwargs.
_Rewrite = Callable[[dict[str, Any]], tuple[Any, tuple[Any, ...], dict[str, Any]]]


def _spread(op: Any) -> _Rewrite:
    def rewrite(a: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        # The older overloads have unbiased in place of a correction.
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


# An op whose results become ops of their own: in place of each getitem.
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
# An op that is another one with the same results, where it does not train: ours
# always sorts stably.
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
}


# Ops that cut a tensor along a dimension.
_PARTS = (_aten.split.Tensor, _aten.split_with_sizes.default, _aten.chunk.default)


def rewrite(program: ExportedProgram, runs: Callable[[Node], bool]) -> ExportedProgram:
    """The program with core ops where it had these.

    Only what `runs` on the GPU gets a twin: the CPU has no kernel for twins.
    """
    bodies = graph_modules(program.graph_module)
    if any(_is_rewritten(node) for body in bodies for node in body.module.graph.nodes):
        made = _rewritten(program, runs)
    else:
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
    module = copy.deepcopy(program.graph_module)
    for body in graph_modules(module):
        graph = body.module.graph
        for node in list(graph.nodes):
            if (body.path, node.name) in twins:
                node.target = TWINS[node.target]
            else:
                _rewrite_node(graph, node)
        body.module.recompile()
    return with_module(program, module)


def _rewrite_node(graph: Graph, node: Node) -> None:
    if node.target in _SAME and not _arguments(node).get("training"):
        _become(node, _SAME[node.target], node)
        return
    if node.target in _COMPOSED:
        _COMPOSED[node.target](graph, node)
        return
    rules = _slices(node) if node.target in _PARTS else _SPLIT.get(node.target, ())
    for user in list(node.users) if rules else ():
        place = user.args[1]
        if user.target is operator.getitem and isinstance(place, int):
            _become(user, rules[place], node)
    if rules and not node.users:
        graph.erase_node(node)


def _is_rewritten(node: Node) -> bool:
    known: tuple[Any, ...] = (_SAME, _SPLIT, _PARTS, _COMPOSED, TWINS)
    return any(node.target in ops for ops in known)


def _sort_first(graph: Graph, node: Node) -> None:
    """The k-th value and its place as elements of sorted rows."""
    given = _arguments(node)
    x, k, dim = given["self"].meta["val"], given["k"], given["dim"]
    if not isinstance(k, int) or not x.dim():
        return
    with graph.inserting_before(node):
        rows = graph.call_function(_aten.sort.default, (given["self"], dim, False))
        rows.meta["val"] = _aten.sort.default(x, dim, False)
        for user in list(node.users):
            part = graph.call_function(operator.getitem, (rows, user.args[1]))
            part.meta["val"] = rows.meta["val"][user.args[1]]
            user.target, user.args = _aten.select.int, (part, dim, k - 1)
            if given["keepdim"]:
                user.target, user.args = _aten.slice.Tensor, (part, dim, k - 1, k)
    graph.erase_node(node)


def _norm_of_difference(graph: Graph, node: Node) -> None:
    given = _arguments(node)
    operands = (given["self"], given["other"])
    with graph.inserting_before(node):
        difference = graph.call_function(_aten.sub.Tensor, operands)
        values = (operand.meta["val"] for operand in operands)
        difference.meta["val"] = _aten.sub.Tensor(*values)
    node.target, node.args = _aten.linalg_vector_norm.default, (difference, given["p"])


# An op that becomes several.
_COMPOSED: dict[Any, Callable[[Graph, Node], None]] = {
    _aten.kthvalue.default: _sort_first,
    _aten.dist.default: _norm_of_difference,
}


def _slices(node: Node) -> tuple[_Rewrite, ...]:
    """A slice for each part; none if a part's size is not known."""
    parts = node.meta["val"]
    dim = _arguments(node)["dim"]
    sizes = [part.shape[dim] for part in parts]
    if not all(isinstance(size, int) for size in sizes):
        return ()
    ends = list(itertools.accumulate(sizes))

    def part(start: int, end: int) -> _Rewrite:
        return lambda a: (_aten.slice.Tensor, (a["self"], dim, start, end), {})

    return tuple(part(end - size, end) for size, end in zip(sizes, ends))


def _become(node: Node, rule: _Rewrite, source: Node) -> None:
    """Turns `node` into what the rule makes of `source`'s arguments."""
    given = _arguments(source)
    node.target, node.args, node.kwargs = rule(given)


def _arguments(node: Node) -> dict[str, Any]:
    """A call's arguments by name, with defaults filled in."""
    assert isinstance(node.target, torch._ops.OpOverload)
    schema = node.target._schema.arguments
    named = {argument.name: argument.default_value for argument in schema}
    named.update(zip(named, node.args))
    named.update(node.kwargs)
    return named
