"""Folds float64 that no input reaches, a type that the GPU does not have.

Enters an exported program before it is decomposed; leaves one in which a node that
converts float64 constants to another type, such as the last one of
`(torch.arange(4, dtype=torch.float64) / 10000).float()`, reads a constant of that
type. A float64 that is a result of the program, or is combined with one that an input
reaches, stays as it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from . import program_constants

_aten = torch.ops.aten

# Elements up to which a node is evaluated: 32 MiB of float64 while exporting, and
# 16 MiB of float32 in the program.
MOST = 1 << 22


def fold(program: ExportedProgram) -> ExportedProgram:
    """The program with such constants; itself if there is nothing to fold."""
    if not any(_leaves_float64(node) for node in program.graph.nodes):
        return program
    made = program_constants.copied(program)
    graph = made.graph
    leaving = [node for node in graph.nodes if _leaves_float64(node)]
    known = program_constants.evaluate(
        graph, _unchanged(made), MOST, MOST, wanted=_behind(leaving)
    )
    for node in leaving:
        value = known.pop(node, None)
        if isinstance(value, torch.Tensor):
            _become_constant(made, node, value)
    _drop(made, known)
    made.graph_module.recompile()
    return made


def _become_constant(program: ExportedProgram, node: Node, value: torch.Tensor) -> None:
    """A node as a view of a constant, with the strides that later views rely on."""
    order = list(value.dim_order())
    inverse = sorted(range(len(order)), key=order.__getitem__)
    dense = value.permute(order).clone(memory_format=torch.contiguous_format)
    folded = program_constants.add(program, f"folded_{node.name}", dense)
    node.target, node.args, node.kwargs = _aten.permute.default, (folded, inverse), {}


def _leaves_float64(node: Node) -> bool:
    """Whether a node makes a tensor of another type from float64."""
    value = node.meta.get("val")
    return (
        node.op == "call_function"
        and isinstance(value, torch.Tensor)
        and not _has_float64(value)
        and any(_has_float64(item.meta.get("val")) for item in node.all_input_nodes)
    )


def _has_float64(value: Any) -> bool:
    return any(
        isinstance(result, torch.Tensor) and result.dtype is torch.float64
        for result in program_constants.results(value)
    )


def _behind(nodes: list[Node]) -> set[Node]:
    """Nodes and what they are computed from."""
    found: set[Node] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.all_input_nodes
    return found


def _unchanged(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The program's constants that are no states."""
    signature = program.graph_signature
    states = set(signature.buffers_to_mutate.values())
    return {
        name: value
        for name, value in program_constants.at_hand(program).items()
        if signature.inputs_to_buffers.get(name) not in states
    }


def _drop(program: ExportedProgram, known: dict[Node, Any]) -> None:
    """Erases the evaluated nodes that nothing reads any more.

    A check of their types and sizes holds, and would keep them alive.
    """
    graph = program.graph
    for node in reversed(list(graph.nodes)):
        if node.target is _aten._assert_tensor_metadata.default:
            is_done = node.args[0] in known
        else:
            is_done = node in known and node.op == "call_function" and not node.users
        if is_done:
            graph.erase_node(node)
