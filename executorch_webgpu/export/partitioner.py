"""WebGPUPartitioner: which nodes go to the GPU and, for the others, why not.

A node is delegated if its op function can plan it, at its largest and at its
smallest shape; the reason of a refusal is what the op function says.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from executorch.exir.backend.canonical_partitioners.pattern_op_partitioner import (
    generate_partitions_from_list_of_nodes,
)
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import (
    DelegationSpec,
    Partitioner,
    PartitionResult,
)
from executorch.exir.backend.utils import tag_constant_data, tag_mutated_buffer
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.tracer import _default_decomposition_table
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.passes.operator_support import OperatorSupportBase

from ..errors import Unsupported
from ..plan import registry
from . import int64_overflow, multiply_adds
from .backend import ReportingSpecs, WebGPUBackend
from .fx import fold_float64, to_core_aten, unalias_states
from .fx.control_flow import CONTROL_FLOW, Body, graph_modules
from .fx_to_ir import (
    CHOICES,
    build_node,
    constant_tensors,
    is_symbolic_int,
    op_name,
    scale_choice,
)
from .report import Fallback, Report
from .stages import PARTITION, REWRITE, show_progress, timed
from .support import check_supported, remembering
from .verifier_ops import is_twin

_log = logging.getLogger("executorch_webgpu")


class _Support(OperatorSupportBase):
    """Asks the op functions about the nodes of a program, or of one body of control
    flow in it, and remembers every answer."""

    def __init__(
        self,
        partitioner: WebGPUPartitioner,
        program: ExportedProgram,
        body: Body,
    ) -> None:
        self.partitioner = partitioner
        self.program = program
        self.module = body.module
        self.path = body.path
        self.trips = body.trips
        # ExecuTorch hands a body of control flow its weights as inputs.
        self.constants = frozenset(() if body.path else constant_tensors(program))
        self.report = partitioner.report
        self.answers: dict[Node, bool] = {}
        # ExecuTorch shows the partitioner a program without the values of buffers,
        # which an earlier form of it had.
        integers = {**partitioner.integers, **int64_overflow.integers(program)}
        self.wide = int64_overflow.beyond_int32(
            body.module.graph,
            {} if body.path else integers,
            lambda node: bool(self._refusal(node)),
        )

    def is_node_supported(self, submodules: object, node: Node) -> bool:
        if node not in self.answers:
            self.answers[node] = self._decide(node)
        return self.answers[node]

    def _decide(self, node: Node) -> bool:
        if node.op != "call_function":
            return False
        if op_name(node) == "getitem":
            source = node.args[0]
            return isinstance(source, Node) and self.is_node_supported(None, source)
        if node.target is executorch_call_delegate:
            self._count_delegate(node)
            return False
        if is_symbolic_int(node) or node.meta.get("val") is None:
            # Sizes cost the CPU nothing, unless they are of a result of the GPU.
            return is_symbolic_int(node) and self._size_of_delegated(node)
        if _only_read_as_integer(node):
            return False
        reason = self.reason(node) or self._separated(node)
        name, work = (
            self.path + node.name,
            self.trips * multiply_adds.multiply_adds(node),
        )
        if reason:
            self.report.fallbacks.append(Fallback(name, op_name(node), reason))
            self.report.cpu_multiply_adds += work
            _log.debug("%s (%s) stays on the CPU: %s", name, op_name(node), reason)
            return False
        self.report.delegated[op_name(node)] += 1
        self.report.gpu_multiply_adds += work
        return True

    def _count_delegate(self, node: Node) -> None:
        """Reports a delegate that another partitioner made."""
        lowered = node.args[0]
        assert isinstance(lowered, Node)
        assert isinstance(lowered.target, str)
        module: Any = getattr(self.module, lowered.target)
        inside = map(multiply_adds.multiply_adds, module.original_module.graph.nodes)
        self.report.elsewhere[module.backend_id] += 1
        self.report.elsewhere_multiply_adds += self.trips * sum(inside)

    def _size_of_delegated(self, node: Node) -> bool:
        """Whether a symbolic integer is computed from results of the GPU alone."""
        if _from_inputs(node):
            return False
        return all(
            source.op == "placeholder"
            or (is_symbolic_int(source) and _from_inputs(source))
            or self.is_node_supported(None, source)
            for source in node.all_input_nodes
        )

    def _separated(self, node: Node) -> str:
        """Why a chosen scale, float64 outside, would have to leave the delegate."""
        choices = [scale_choice(item) for item in node.all_input_nodes]
        if op_name(node) in CHOICES:
            choices.append(node)
        for choice in filter(None, choices):
            readers = [reader for item in choice.users for reader in item.users]
            for other in (choice, *readers):
                reason = self.reason(other) if other.op == "call_function" else "it"
                if reason:
                    return f"a float64 must stay inside, got {other.name}: {reason}"
        return ""

    def reason(self, node: Node) -> str:
        """Why the node must stay on the CPU; empty if it need not."""
        listed = self.partitioner.refusal(node)
        if listed:
            return listed
        for item in (node, *node.all_input_nodes):
            if item in self.wide:
                return f"an int64 must fit int32, got {self.wide[item]}"
        return self._refusal(node)

    def _refusal(self, node: Node) -> str:
        """The op function's reason to refuse; empty if it plans the node."""
        name = op_name(node)
        found = registry.find(name)
        if node.target in CONTROL_FLOW:
            return "control flow is the CPU's; ops inside are counted by themselves"
        if found is None:
            return "no kernel for this op"
        if found.of_storage and not _is_its_storage(node.all_input_nodes[0]):
            return "strides must be of a contiguous tensor, got a view of another"
        try:
            graph = build_node(self.program, node, self.constants)
            check_supported(graph)
        except Unsupported as error:
            return str(error).removeprefix(f"{name}: ")
        return ""


def _is_its_storage(node: Node) -> bool:
    """Whether a tensor's elements are those of its storage in eager, from its start."""
    fake = node.meta["val"]
    return fake.is_contiguous() and not fake.storage_offset()


_ITEM = torch.ops.aten._local_scalar_dense.default


def _from_inputs(node: Node) -> bool:
    """Whether a symbolic integer is computed from the program's inputs alone.

    An element of a tensor is read on the CPU: kernels get it as an integer.
    """
    return node.target is _ITEM or all(
        source.op == "placeholder" or (is_symbolic_int(source) and _from_inputs(source))
        for source in node.all_input_nodes
    )


def _only_read_as_integer(node: Node) -> bool:
    """Whether a node picks what only becomes an integer on the CPU, from an input."""
    return (
        bool(node.users)
        and all(user.target is _ITEM for user in node.users)
        and all(source.op == "placeholder" for source in node.all_input_nodes)
    )


@functools.cache
def _decomposed() -> frozenset[object]:
    """The ops that ExecuTorch decomposes; torch takes its time to list them."""
    return frozenset(_default_decomposition_table())


def _takes_no_number(node: Node) -> bool:
    """Whether no number stands for a tensor, which only ATen's own calls allow."""
    schema = getattr(node.target, "_schema", None)
    return schema is None or not any(
        isinstance(arg, (int, float)) and isinstance(formal.type, torch.TensorType)
        for arg, formal in zip(node.args, schema.arguments)
    )


class WebGPUPartitioner(Partitioner):
    """Delegates to WebGPU everything that it can run.

    operator_allowlist, operator_blocklist: names such as `aten.add.Tensor`, or
        the overloads themselves.
    nn_module_allowlist, nn_module_blocklist: substrings of modules' types or of
        their paths, such as `torch.nn.modules.linear.Linear` or `encoder.0`.
    external_weights: the name of a `.ptd` file to hold the weights, without its
        ending; None keeps them in the program.
    f16_accumulate: whether GPUs may sum products of float16 in float16, in short runs;
        the default of the option at run time.
    portable: whether the program carries plans, so that it runs without Python, in C++
        and in a browser (docs/portable.md).
    """

    def __init__(
        self,
        *,
        operator_allowlist: Iterable[str | torch._ops.OpOverload] | None = None,
        operator_blocklist: Iterable[str | torch._ops.OpOverload] = (),
        nn_module_allowlist: Sequence[str] | None = None,
        nn_module_blocklist: Sequence[str] = (),
        external_weights: str | None = None,
        f16_accumulate: bool = False,
        portable: bool = False,
    ) -> None:
        super().__init__()
        self.operator_allowlist = (
            None if operator_allowlist is None else _names(operator_allowlist)
        )
        self.operator_blocklist = _names(operator_blocklist)
        self.nn_module_allowlist = nn_module_allowlist
        self.nn_module_blocklist = nn_module_blocklist
        self.report = Report()
        specs = ReportingSpecs((), self.report)
        if external_weights is not None:
            specs.append(CompileSpec("external_weights", external_weights.encode()))
        if f16_accumulate:
            specs.append(CompileSpec("f16_accumulate", b"1"))
        if portable:
            specs.append(CompileSpec("portable", b"1"))
        self.delegation_spec = DelegationSpec(WebGPUBackend.__name__, specs)
        self.integers: dict[str, torch.Tensor] = {}

    def refusal(self, node: Node) -> str:
        """Why the user's lists keep a node on the CPU; empty if they do not."""
        name = op_name(node)
        if name in self.operator_blocklist:
            return "in operator_blocklist"
        if self.operator_allowlist is not None and name not in self.operator_allowlist:
            return "not in operator_allowlist"
        modules = _modules(node)
        if any(name in text for name in self.nn_module_blocklist for text in modules):
            return "in nn_module_blocklist"
        allowed = self.nn_module_allowlist
        if allowed is not None and not any(p in t for p in allowed for t in modules):
            return "not in nn_module_allowlist"
        return ""

    @timed(REWRITE)
    def transform_for_pre_decomposition(
        self, exported_program: ExportedProgram
    ) -> ExportedProgram:
        """Folds float64 constants, replaces ops that no edge program may contain by
        core ops, and copies what would be a state and a result at once."""
        show_progress()
        folded = fold_float64.fold(exported_program)
        self.integers.update(int64_overflow.integers(folded))
        supports: dict[Graph, _Support] = {}

        def runs(node: Node) -> bool:
            if not supports:
                for support in self._supports(folded):
                    supports[support.module.graph] = support
            return not supports[node.graph].reason(node)

        rewritten = to_core_aten.rewrite(folded, runs)
        # Last, because it gives ops that change arguments other names.
        return unalias_states.separate(rewritten)

    @timed(PARTITION)
    @remembering()
    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """Ops for which there is a better kernel than their decomposition.

        An op stays whole only if every use of it will be delegated: the CPU may
        have no kernel for it. Deciding here, by program, rather than by node in
        the second result, spares ExecuTorch a decomposition of the whole program.
        """
        whole: dict[torch._ops.OpOverload, bool] = {}
        for support in self._supports(ep):
            for node in support.module.graph.nodes:
                target = node.target
                # A twin is never decomposed.
                if isinstance(target, torch._ops.OpOverload) and not is_twin(target):
                    op = registry.find(op_name(node))
                    if op is not None and op.keep and whole.get(target, True):
                        whole[target] = not support.reason(node)
        kept = [overload for overload, stays in whole.items() if stays]
        # ExecuTorch's verifier lets an op that is neither core ATen nor can be
        # decomposed pass only if the nodes to keep are named one by one.
        table = _decomposed()
        alone = any(o not in table and torch.Tag.core not in o.tags for o in kept)
        return kept, _takes_no_number if alone else None

    def _supports(self, program: ExportedProgram) -> Iterator[_Support]:
        """For the program's own nodes, then for those of every body in it."""
        for body in graph_modules(program.graph_module):
            yield _Support(self, program, body)

    @timed(PARTITION)
    @remembering()
    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        show_progress()
        tags: dict[str, DelegationSpec] = {}
        for support in self._supports(exported_program):
            partitions = generate_partitions_from_list_of_nodes(
                support.module, op_support=support
            )
            for partition in partitions:
                # A tag becomes part of a module's name, which has no dots.
                tag = f"webgpu_{support.path.replace('.', '_')}{partition.id}"
                for node in partition.nodes:
                    node.meta["delegation_tag"] = tag
                tags[tag] = self.delegation_spec
        tag_constant_data(exported_program)
        tag_mutated_buffer(exported_program)
        _leave_shared_states(exported_program)
        if self.report.complete:
            _log.info("all on WebGPU:\n%s", self.report)
        else:
            # A warning: a slow program should not be the first sign.
            _log.warning("not all on WebGPU:\n%s", self.report.left_over)
        return PartitionResult(
            tagged_exported_program=exported_program, partition_tags=tags
        )


def _leave_shared_states(program: ExportedProgram) -> None:
    """Leaves to ExecuTorch the buffers whose old or new content is read elsewhere.

    A delegate that owns a buffer gives nobody its new content. One that does not
    takes the old as an input and returns the new, which ExecuTorch writes back.
    """
    signature = program.graph_signature
    nodes = {node.name: node for node in program.graph.nodes}
    made = {target: nodes[name] for name, target in signature.buffers_to_mutate.items()}
    results = Counter(spec.arg.name for spec in signature.output_specs)
    for name, target in signature.inputs_to_buffers.items():
        tag, new = nodes[name].meta.get("delegation_tag"), made.get(target)
        if tag is None or new is None:
            continue
        readers = [user for user in new.users if user.op != "output"]
        inside = all(
            node.meta.get("delegation_tag") == tag
            for node in (new, *readers, *nodes[name].users)
        )
        if not inside or results[new.name] > 1:
            del nodes[name].meta["delegation_tag"]
            # Else ExecuTorch would start it with zeros, whatever it held.
            nodes[name].meta["et_init_buffer"] = True
            _log.info("%s stays with ExecuTorch: it is read outside %s", target, tag)


def _names(ops: Iterable[str | torch._ops.OpOverload]) -> frozenset[str]:
    names = set()
    for item in ops:
        name = item if isinstance(item, str) else str(item)
        if name.count(".") < 2:
            raise ValueError(
                f"WebGPUPartitioner: op must be named like aten.add.Tensor, got {name}"
            )
        names.add(name)
    return frozenset(names)


def _modules(node: Node) -> list[str]:
    stack = node.meta.get("nn_module_stack") or {}
    return [str(name) for entry in stack.values() for name in entry]
