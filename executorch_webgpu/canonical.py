"""Ops with several results outside core ATen, as core ops that mean the same.

Enters an exported program before it is decomposed; leaves it in place. ExecuTorch's
verifier accepts none of these ops in an edge program, whatever a backend can do.
A node keeps its name, because the program's signature refers to it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

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
# An op that is another one with the same results: ours always sorts stably.
_SAME: dict[Any, _Rewrite] = {
    _aten.sort.stable: lambda a: (
        _aten.sort.default,
        (a["self"], a["dim"], a["descending"]),
        {},
    ),
}


def rewrite(program: ExportedProgram) -> ExportedProgram:
    """The program with core ops where it had these."""
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if node.target in _SAME:
            _become(node, _SAME[node.target], node)
        elif node.target in _SPLIT:
            for user in list(node.users):
                if user.target is operator.getitem:
                    _become(user, _SPLIT[node.target][user.args[1]], node)
            if not node.users:
                graph.erase_node(node)
    program.graph_module.recompile()
    return program


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
