"""Copies a buffer's new content, or a constant, that is also a result or another state.

Enters an exported program before it is decomposed; leaves one in which what a buffer
is set to is computed for that buffer alone, and no result of the program is a constant
itself. Only then does ExecuTorch let a delegate own the state or the constant: a GRU
that returns its hidden state, or a filter that keeps its last input, would not lower.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch
from torch._export.utils import _is_cia_op, _is_preservable_cia_op
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from .. import stages
from .control_flow import with_module


def separate(program: ExportedProgram) -> ExportedProgram:
    """The program with those copies; itself if there are none."""
    if not _changes_buffers(program) and not _returns_constants(program):
        return program
    began = time.process_time()
    program = program.run_decompositions({})  # mutations become results
    took = time.process_time() - began
    module = program.graph_module
    output = module.graph.output_node()
    results = list(output.args[0])
    for index in list(_shared(program, results)):
        node = results[index]
        with module.graph.inserting_before(output):
            copied = module.graph.call_function(torch.ops.aten.clone.default, (node,))
        copied.meta = dict(node.meta)
        results[index] = copied
    output.args = (tuple(results),)
    module.recompile()
    made = with_module(program, module)
    if not any(map(_is_composite, module.graph.nodes)):
        made.__class__ = _Functional
        stages.spare(took)
    return made


def _is_composite(node: Node) -> bool:
    """Whether decomposing by an empty table would replace a node nevertheless."""
    target = node.target
    if isinstance(target, torch._ops.HigherOrderOperator):
        return True  # its bodies are not looked at
    return (
        isinstance(target, torch._ops.OpOverload)
        and _is_cia_op(target)
        and not _is_preservable_cia_op(target)
    )


class _Functional(ExportedProgram):
    """A program that decomposing by an empty table leaves as it is, which is what
    ExecuTorch does first; so it need not trace the whole program a second time."""

    def run_decompositions(
        self,
        decomp_table: dict[torch._ops.OperatorBase, Callable[..., object]]
        | None = None,
        decompose_custom_triton_ops: bool = False,
    ) -> ExportedProgram:
        # Torch's own tables are dicts, too, which are filled when they are read.
        if type(decomp_table) is dict and not decomp_table:
            return self
        made: ExportedProgram = super().run_decompositions(
            decomp_table, decompose_custom_triton_ops
        )
        return made


def _shared(program: ExportedProgram, results: list[Node]) -> Iterator[int]:
    """The indices of results that are also another result, state or constant."""
    owned = _constants(program)
    kinds = [spec.kind for spec in program.graph_signature.output_specs]
    taken: set[Node] = set()
    for index, (kind, node) in enumerate(zip(kinds, results)):
        if kind is OutputKind.BUFFER_MUTATION:
            if node in taken or node.op == "placeholder":
                yield index
            taken.add(node)
    for index, (kind, node) in enumerate(zip(kinds, results)):
        is_result = kind is OutputKind.USER_OUTPUT and isinstance(node, Node)
        if is_result and (node in taken or node.name in owned):
            yield index


def _constants(program: ExportedProgram) -> frozenset[str]:
    """Names of the inputs that are parameters, buffers or constants."""
    signature = program.graph_signature
    return frozenset(
        [
            *signature.inputs_to_parameters,
            *signature.inputs_to_buffers,
            *signature.inputs_to_lifted_tensor_constants,
        ]
    )


def _changes_buffers(program: ExportedProgram) -> bool:
    """Whether an op may write to a buffer, as opposed to a result of the program's own:
    activations that work in place do only that."""
    if program.graph_signature.buffers_to_mutate:
        return True
    return any(
        _is_of_an_input(written)
        for node in program.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
        for written in _aliased(node, only_written=True)
    )


def _is_of_an_input(node: Node) -> bool:
    """Whether a node may be a view of an input of the program, a buffer among them."""
    seen, waiting = {node}, [node]
    while waiting:
        node = waiting.pop()
        if node.op != "call_function":
            return True
        is_op = isinstance(node.target, torch._ops.OpOverload)
        sources = set(_aliased(node) if is_op else node.all_input_nodes) - seen
        seen |= sources
        waiting += sources
    return False


def _aliased(node: Node, only_written: bool = False) -> Iterator[Node]:
    """The arguments that share memory with what an op returns, or that it writes to."""
    assert isinstance(node.target, torch._ops.OpOverload)
    for index, argument in enumerate(node.target._schema.arguments):
        alias = argument.alias_info
        if alias is None or (only_written and not alias.is_write):
            continue
        given = node.args[index] if index < len(node.args) else None
        given = node.kwargs.get(argument.name, given)
        for item in given if isinstance(given, (list, tuple)) else (given,):
            if isinstance(item, Node):
                yield item


def _returns_constants(program: ExportedProgram) -> bool:
    return not _constants(program).isdisjoint(program.graph_signature.user_outputs)
