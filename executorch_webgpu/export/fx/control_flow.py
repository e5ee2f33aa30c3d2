"""A program's graph and the bodies of its control flow, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from executorch.exir.graph_module import get_control_flow_submodules
from executorch.exir.program._program import (
    _get_updated_graph_signature,
    _get_updated_range_constraints,
)
from torch.export import ExportedProgram
from torch.fx import GraphModule

from .. import multiply_adds

# Ops that run graphs which are their arguments, in ExecuTorch's interpreter. (It does
# not know while_loop.)
CONTROL_FLOW = (
    torch.ops.higher_order.cond,
    torch.ops.higher_order.map_impl,
    torch.ops.higher_order.scan,
)


@dataclass(frozen=True)
class Body:
    """A program's own graph, or one that control flow in it runs."""

    module: GraphModule
    path: str = ""  # the nodes and modules that lead to it: `cond.true_graph_0.`
    trips: int = 1  # how often it runs at the example sizes, if it runs


def graph_modules(module: GraphModule) -> Iterator[Body]:
    """The module itself, and all bodies of control flow in it."""
    return _bodies(Body(module))


def _bodies(outer: Body) -> Iterator[Body]:
    yield outer
    seen: set[str] = set()
    for name, module, node in get_control_flow_submodules(outer.module):
        if name not in seen:
            seen.add(name)
            trips = outer.trips * multiply_adds.trips(node)
            yield from _bodies(Body(module, f"{outer.path}{node.name}.{name}.", trips))


def with_module(program: ExportedProgram, module: GraphModule) -> ExportedProgram:
    """The program with another graph, and a signature that matches its names.

    ExecuTorch's own function for this copies the call graph, which torch announces
    with a warning in every lowering; nothing here changes it.
    """
    made = ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=_get_updated_graph_signature(program.graph_signature, module),
        state_dict=program.state_dict,
        range_constraints=_get_updated_range_constraints(module),
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=[program.verifier],
    )
    made.graph_module.meta.update(program.graph_module.meta)
    return made
