"""Constants of an exported program: what is computed from them, and new ones.

Enters a program, decomposed or not. Leaves the values of nodes that no input
reaches, which torch computes at export. What changes in place has no value, and
neither has what is drawn at random or left uninitialized.
"""

from __future__ import annotations

import copy
import logging
import operator
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from executorch.backends.transforms.utils import create_constant_placeholder
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from ..fx_to_ir import constant_tensors
from .control_flow import with_module

_log = logging.getLogger("executorch_webgpu")


def at_hand(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The tensors that the program owns, by placeholder, whose values are known."""
    found = {}
    for name, tensor in constant_tensors(program).items():
        value = tensor.constant if isinstance(tensor, FakeTensor) else tensor
        if value is not None:
            found[name] = value.detach()
    return found


def evaluate(
    graph: Graph,
    constants: Mapping[str, torch.Tensor],
    integers: int,
    floats: int,
    wanted: Collection[Node] | None = None,
) -> dict[Node, Any]:
    """The values of nodes that depend on constants alone.

    Nodes of more than so many elements, integers or floats, are left out, and all but
    those `wanted` if these are given.
    """
    changed = _changed(graph)
    known: dict[Node, Any] = {}
    # While ExecuTorch traces, torch computes no values.
    with unset_fake_temporarily(), torch.no_grad():
        for node in graph.nodes:
            if node in changed or (wanted is not None and node not in wanted):
                continue
            if node.op == "placeholder" and node.name in constants:
                known[node] = constants[node.name]
            elif node.op == "call_function" and _is_small(node, integers, floats):
                _call(node, known)
    return known


def _call(node: Node, known: dict[Node, Any]) -> None:
    """Computes a node that depends on known ones alone."""
    if not all(source in known for source in node.all_input_nodes):
        return
    if not callable(node.target) or not _is_pure(node.target):
        return
    args = map_arg(node.args, known.__getitem__)
    kwargs = map_arg(node.kwargs, known.__getitem__)
    try:
        known[node] = node.target(*args, **kwargs)
    except (RuntimeError, NotImplementedError, IndexError) as error:
        # Torch has no CPU kernel for it: its value is as unknown as an input's.
        _log.debug("%s is not evaluated: %s", node.name, error)


def _is_pure(target: Any) -> bool:
    """Whether a call gives the same result every time and mutates nothing."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return target is operator.getitem
    uninitialized = "empty" in schema.name
    drawn = torch.Tag.nondeterministic_seeded in target.tags
    return not (schema.is_mutable or uninitialized or drawn)


def _changed(graph: Graph) -> set[Node]:
    """Nodes that ops mutate, and what these are views of."""
    pending: list[Node] = []
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            for formal, given in zip(schema.arguments, node.args):
                if formal.alias_info is not None and formal.alias_info.is_write:
                    map_arg(given, pending.append)
    found: set[Node] = set()
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.all_input_nodes if _may_be_view(node) else ()
    return found


def _may_be_view(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is None or any(result.alias_info for result in schema.returns)


def _is_small(node: Node, integers: int, floats: int) -> bool:
    for item in (node, *node.all_input_nodes):
        for result in results(item.meta.get("val")):
            if not isinstance(result, torch.Tensor):
                return False
            if not all(isinstance(size, int) for size in result.shape):
                return False
            is_real = result.is_floating_point() or result.is_complex()
            if result.numel() > (floats if is_real else integers):
                return False
    return True


def results(value: Any) -> Iterable[Any]:
    """What a node returns, one or several, as a sequence."""
    return value if isinstance(value, (tuple, list)) else (value,)


def copied(program: ExportedProgram) -> ExportedProgram:
    """The program with a graph and constants of its own, to be changed."""
    made = with_module(program, copy.deepcopy(program.graph_module))
    made._constants = dict(program.constants)
    return made


def add(program: ExportedProgram, name: str, value: torch.Tensor) -> Node:
    """A new constant of the program, before its inputs."""
    given = {*program.graph_signature.user_inputs}
    first = next(
        node
        for node in program.graph.nodes
        if node.op != "placeholder" or node.name in given
    )
    with program.graph.inserting_before(first):
        made: Node = create_constant_placeholder(
            program, program.graph, name, InputKind.CONSTANT_TENSOR, value
        )
    return made
