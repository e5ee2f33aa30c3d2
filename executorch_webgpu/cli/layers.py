"""Which op of a model departs first.

The exported graph is cut into runs of ops. Each is lowered with every intermediate
result as an output, and called with what eager PyTorch computed before it, so that no
error adds up over cuts. An op is at fault if its result departs and those that it
reads, of the same cut, do not.

What ops do together, fused, is not seen that way: `whole` lowers the same cuts with
those results alone that are read behind them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import WebGPUError
from .differences import Difference, Tolerance, difference
from .eager import Eager
from .loaded import Loaded

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

# Ops of a cut: lowering takes some seconds for each, and memory for all their results.
_OPS = 40


@dataclass(frozen=True)
class Layer:
    """A result of an op, computed here and by eager PyTorch."""

    op: str
    name: str  # of the node
    module: str  # path in the model; "" if it is not known
    difference: Difference
    is_first: bool  # whether all that it reads agrees

    @property
    def is_at_fault(self) -> bool:
        return self.is_first and self.difference.departs

    def describe(self) -> str:
        place = f" in {self.module}" if self.module else ""
        return f"{self.op} ({self.name}){place}"


class Layers:
    """The ops of a model, and what eager PyTorch computes in each for some inputs."""

    def __init__(self, model: Eager, flat: Sequence[Any]) -> None:
        import torch

        with torch.no_grad():
            exported = torch.export.export(model.module, model.arguments(flat))
            functional = exported.run_decompositions({})
            self._module: GraphModule = functional.module(check_guards=False)
            _drop_writes(self._module)
            self._values = _values(self._module, flat)
        self._ops = _in_order(self._module, self._values)
        self.cuts = list(_cuts(self._ops))

    def compare(
        self, tolerance: Tolerance, done: Callable[[], None], whole: bool = False
    ) -> Iterator[Layer]:
        """In the order of the graph; `done` is called behind each cut."""
        departing: set[Node] = set()
        for cut in self.cuts:
            wanted = [node for node in cut if _is_tensor(self._values[node])]
            if whole:
                wanted = [n for n in wanted if any(u not in cut for u in n.users)]
            if not wanted:
                continue
            for node, result in zip(wanted, self._run(cut, wanted)):
                found = difference(result, self._values[node], tolerance)
                reads = _reads(node)
                if found.departs:
                    departing.add(node)
                is_first = whole or not departing.intersection(reads) & set(cut)
                yield Layer(_op(node), node.name, _module_path(node), found, is_first)
            done()

    def _run(self, cut: Sequence[Node], wanted: Sequence[Node]) -> list[Any]:
        import torch
        from executorch.exir import to_edge_transform_and_lower

        from ..export.partitioner import WebGPUPartitioner

        module, inputs = self._cut_out(cut, wanted)
        try:
            with torch.no_grad():
                exported = torch.export.export(module, inputs)
            lowered = to_edge_transform_and_lower(
                exported, partitioner=[WebGPUPartitioner()]
            )
            program = bytes(lowered.to_executorch().buffer)
        # An op may be refused by any part of the exporter.
        except Exception as error:
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise WebGPUError(
                f"--layers: the ops from {cut[0].name} to {cut[-1].name} must lower by"
                f" themselves, got {said}"
            ) from error
        return Loaded(program, "forward").call(inputs)

    def _cut_out(
        self, cut: Sequence[Node], wanted: Sequence[Node]
    ) -> tuple[GraphModule, tuple[Any, ...]]:
        """These ops as a module, with what it is called with: tensors that are computed
        before. Weights stay weights, and numbers become constants."""
        import torch

        graph = torch.fx.Graph()
        made: dict[Node, Any] = {}
        inputs: list[Any] = []
        outside = [n for node in cut for n in node.all_input_nodes if n not in cut]
        for node in dict.fromkeys(outside):
            if node.op == "get_attr":
                continue
            value = self._values[node]
            if _is_tensor(value):
                made[node] = graph.placeholder(node.name)
                # Of a view, export takes the sizes of what it views for dynamic.
                own = value.clone(memory_format=torch.contiguous_format)
                inputs.append(own.detach())
            else:
                made[node] = value
        for node in dict.fromkeys(outside):
            if node.op == "get_attr":
                made[node] = graph.get_attr(str(node.target))
        for node in cut:
            made[node] = graph.node_copy(node, made.__getitem__)
            # Strides may differ from those that the whole was exported with.
            if node.target is torch.ops.aten.view.default:
                made[node].target = torch.ops.aten.reshape.default
        graph.output(tuple(made[node] for node in wanted))
        return torch.fx.GraphModule(self._module, graph), tuple(inputs)


def _drop_writes(module: GraphModule) -> None:
    """Without what is written into states at the end: they keep their content."""
    import torch

    for node in list(module.graph.nodes):
        if node.target is torch.ops.aten.copy_.default:
            node.replace_all_uses_with(node.args[1])
            module.graph.erase_node(node)
    module.recompile()


def _values(module: GraphModule, flat: Sequence[Any]) -> dict[Node, Any]:
    """What each node is, computed by eager PyTorch."""
    import torch

    found: dict[Node, Any] = {}

    class Keeping(torch.fx.Interpreter):
        def run_node(self, n: Node) -> Any:
            found[n] = super().run_node(n)
            return found[n]

    Keeping(module, garbage_collect_values=False).run(*flat, enable_io_processing=False)
    return found


def _in_order(module: GraphModule, values: dict[Node, Any]) -> list[list[Node]]:
    """The ops that make tensors, each with the nodes that take its results apart."""
    found: list[list[Node]] = []
    for node in module.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        if _is_tensor(values[node]):
            found.append([node])
        elif isinstance(values[node], (tuple, list)):
            parts = [u for u in node.users if u.target is operator.getitem]
            if any(_is_tensor(values[part]) for part in parts):
                found.append([node, *parts])
    return found


def _cuts(ops: Sequence[list[Node]]) -> Iterator[list[Node]]:
    for start in range(0, len(ops), _OPS):
        yield [node for op in ops[start : start + _OPS] for node in op]


def _reads(node: Node) -> list[Node]:
    """What the op behind a result reads."""
    if node.target is operator.getitem:
        return list(node.all_input_nodes[0].all_input_nodes)
    return list(node.all_input_nodes)


def _op(node: Node) -> str:
    if node.target is operator.getitem:
        return f"{node.all_input_nodes[0].target} [{node.args[1]}]"
    return str(node.target)


def _module_path(node: Node) -> str:
    """Of the innermost module, as `named_modules` has it."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values()]
    return str(paths[-1]).removeprefix("L['self'].") if paths else ""


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)
