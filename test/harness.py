"""What the tests share: export, lower, run through ExecuTorch, compare.

`check_op` asserts that everything was delegated, runs the program in the
standard runtime and compares shape, type and values, each with its own message.
Where `adapters` names more than one, every program runs on each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import drivers
import numpy as np
import torch
from accuracy import TOLERANCES
from executorch.exir import EdgeProgramManager, to_edge_transform_and_lower
from executorch.exir.backend.partitioner import PartitionResult
from executorch.runtime import Method, Runtime
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree
from wgsl_compilers import check_kernels

from executorch_webgpu import WebGPUPartitioner, last_error
from executorch_webgpu.cli import delegates
from executorch_webgpu.export.fx_to_ir import op_name
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.load_graph import load_graph
from executorch_webgpu.plan.plan import Plan
from executorch_webgpu.plan.planner import Planner

# Adapters on which programs run besides the one in force.
adapters: tuple[str, ...] = ()


class Function(torch.nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


class _Watching(WebGPUPartitioner):
    """Keeps, for every output of the program, the names of the ops behind it."""

    behind: tuple[frozenset[str], ...] = ()

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        known: dict[Node, frozenset[str]] = {}
        for node in exported_program.graph.nodes:
            names = [known[source] for source in node.all_input_nodes]
            own = {op_name(node)} if node.op == "call_function" else set()
            known[node] = frozenset(own).union(*names)
        (results,) = exported_program.graph.output_node().args
        self.behind = tuple(known.get(node, frozenset()) for node in results)
        return super().partition(exported_program)


class Program:
    """A lowered program, loaded once and kept alive with its bytes."""

    def __init__(
        self, edge: EdgeProgramManager, partitioner: WebGPUPartitioner
    ) -> None:
        self.edge = edge
        self.report = partitioner.report
        self.behind = getattr(partitioner, "behind", ())
        self.buffer = bytes(edge.to_executorch().buffer)
        # The runtime's Method refers to its Program, which refers to the bytes.
        self._programs: list[Any] = []
        for _, blob in self.delegates:
            check_variants(blob)
        self.method: Method | None = self._load()
        self._twins: dict[str, Method] = {}
        for adapter in adapters:
            with drivers.chosen(adapter):
                self._twins[adapter] = self._load()

    def _load(self) -> Method:
        program = Runtime.get().load_program(self.buffer)
        self._programs.append(program)
        method = program.load_method("forward")
        assert method is not None, last_error()
        return method

    def __call__(self, *inputs: Any) -> list[torch.Tensor]:
        """The results, which all adapters must agree on."""
        results = self.run(*inputs)
        for adapter, others in self.run_twins(*inputs):
            context = Context(self.behind, inputs)
            compare(others, results, where=adapter, context=context)
        return results

    def run(self, *inputs: Any) -> list[torch.Tensor]:
        assert self.method is not None
        return list(self.method.execute(pytree.tree_leaves(inputs)))

    def run_twins(self, *inputs: Any) -> Iterator[tuple[str, list[torch.Tensor]]]:
        """The results of the other adapters, by name."""
        for adapter, method in self._twins.items():
            yield adapter, list(method.execute(pytree.tree_leaves(inputs)))

    @property
    def delegates(self) -> list[tuple[str, bytes]]:
        return delegates(self.buffer)


def check_variants(blob: bytes) -> None:
    """What is traced at some sizes is, at others, what the planner makes for them."""
    graph = load_graph(blob)
    planner = Planner(graph, AOT_CAPS)
    if not planner.ranges:
        return
    for end in (1, 0):
        at = {name: span[end] for name, span in graph.symbols.items()}
        variant = planner.variant(at)
        held = np.flatnonzero(variant.covered(planner.sizes))
        for index in held[[0, len(held) // 2]]:
            live = {name: int(each[index]) for name, each in planner.sizes.items()}
            made, own = variant.at(live), planner.variant(live).at(live)
            assert made is not None
            assert own is not None
            assert _work(made) == _work(own), (live, at)


def _work(plan: Plan) -> list[Any]:
    """What a plan does, whichever scratch buffers it has got."""
    ports = [(p.shape, p.value, p.limits) for p in (*plan.inputs, *plan.outputs)]
    dispatches = [
        (
            plan.pipelines[d.pipeline],
            d.groups,
            plan.params[d.params : d.params + d.params_size],
            d.ranges,
        )
        for d in plan.dispatches
    ]
    return [*ports, *dispatches]


def lower(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    dynamic_shapes: Any = None,
    partitioner: WebGPUPartitioner | None = None,
) -> Program:
    partitioner = partitioner or _Watching()
    with torch.no_grad():
        exported = torch.export.export(
            model.eval(), tuple(inputs), dynamic_shapes=dynamic_shapes
        )
        edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    return Program(edge, partitioner)


def check_op(
    model: torch.nn.Module | Callable[..., Any],
    *inputs: Any,
    dynamic_shapes: Sequence[Any] | None = None,
    others: Sequence[Sequence[Any]] = (),
    rtol: float | None = None,
    atol: float | None = None,
    delegated: bool = True,
) -> Program:
    """Exports `model` once and holds it equal to eager on every set of inputs.

    Its kernels must compile with both compilers of WGSL, for every kind of device.
    With `delegated=False` the program must run, with something left on the CPU.
    """
    shapes = dynamic_shapes
    if not isinstance(model, torch.nn.Module):
        model = Function(model)
        shapes = None if dynamic_shapes is None else (tuple(dynamic_shapes),)
    program = lower(model, inputs, shapes)
    if delegated:
        assert program.report.complete, f"not all delegated:\n{program.report}"
        assert len(program.delegates) == 1, f"{len(program.delegates)} delegates"
    else:
        assert program.report.fallbacks, f"all delegated:\n{program.report}"
    for _, blob in program.delegates:
        check_kernels(blob)
    for number, case in enumerate((inputs, *others)):
        with torch.no_grad():
            expected = pytree.tree_leaves(model(*case))
        given = f"others[{number - 1}]" if number else ""
        context = Context(program.behind, case, given)
        compare(program.run(*case), expected, rtol, atol, context=context)
        for adapter, results in program.run_twins(*case):
            compare(results, expected, rtol, atol, where=adapter, context=context)
    return program


@dataclass(frozen=True)
class Context:
    """Where results come from, for the message of a comparison that fails."""

    behind: Sequence[Collection[str]] = ()  # for every output, the ops behind it
    inputs: Sequence[Any] = ()
    given: str = ""  # which of several sets the inputs are

    def describe(self, output: int) -> str:
        names = sorted(self.behind[output]) if output < len(self.behind) else []
        shown = ", ".join(names[:_SHOWN])
        if len(names) > _SHOWN:
            shown += f" and {len(names) - _SHOWN} more"
        tensors = ", ".join(map(_brief, pytree.tree_leaves(self.inputs)))
        given = f"{self.given} ({tensors})" if self.given else tensors
        return (f" of {shown}" if shown else "") + (f" on {given}" if given else "")


_UNKNOWN = Context()
# Ops of an output that a message names.
_SHOWN = 6


def _brief(value: Any) -> str:
    """A tensor's type and shape; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"


def compare(
    results: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    rtol: float | None = None,
    atol: float | None = None,
    where: str = "",
    context: Context = _UNKNOWN,
) -> None:
    """Asserts equal shapes and types, and values within the type's tolerances."""
    assert len(results) == len(expected), f"{len(results)} outputs, not {len(expected)}"
    for number, (result, wanted) in enumerate(zip(results, expected)):
        label = f"{where} output {number}".strip() + context.describe(number)
        assert result.shape == wanted.shape, (
            f"{label}: shape {tuple(result.shape)}, not {tuple(wanted.shape)}"
        )
        assert result.dtype == wanted.dtype, (
            f"{label}: type {result.dtype}, not {wanted.dtype}"
        )
        relative, absolute = TOLERANCES.get(wanted.dtype, (0.0, 0.0))
        relative = relative if rtol is None else rtol
        absolute = absolute if atol is None else atol
        try:
            torch.testing.assert_close(
                result,
                wanted,
                rtol=relative,
                atol=absolute,
                equal_nan=True,
                check_stride=False,
            )
        except AssertionError as error:
            worst = _worst(result, wanted, relative, absolute)
            raise AssertionError(f"{label}: {worst}\n{error}") from None


def _worst(result: torch.Tensor, wanted: torch.Tensor, rtol: float, atol: float) -> str:
    """The element farthest beyond its limit, with both values, and how many differ."""
    differs = ~torch.isclose(result, wanted, rtol=rtol, atol=atol, equal_nan=True)
    a, b = result.to(torch.float64), wanted.to(torch.float64)
    beyond = (a - b).abs() - rtol * b.abs()
    beyond = beyond.nan_to_num(nan=torch.inf, posinf=torch.inf)
    # What is close is not it, though NaN or infinite as its counterpart is.
    beyond = torch.where(differs, beyond, -torch.inf)
    index = torch.unravel_index(beyond.argmax(), beyond.shape)
    at = [int(i) for i in index]
    return (
        f"element {at} must be {wanted[index].item()}, got {result[index].item()};"
        f" {int(differs.sum())} of {result.numel()} differ"
    )
