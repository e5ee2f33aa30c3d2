"""Our flows for ExecuTorch's backend suite: fp32, fp16 and static int8.

A flow says how the suite lowers a model. Each makes a Tester whose lowering
stage is the standard one with our partitioner; its report is kept for the
summary.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from executorch.backends.test.harness import Tester as TesterBase
from executorch.backends.test.harness import stages
from executorch.backends.test.suite.flow import TestFlow
from executorch.backends.xnnpack.quantizer import xnnpack_quantizer_utils
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch.utils import _pytree as pytree
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from executorch_webgpu import WebGPUPartitioner
from executorch_webgpu.export.partitioner import Report

# What the partitioners of the current test said, in order.
reports: list[Report] = []


class Lower(stages.ToEdgeTransformAndLower):
    def __init__(self) -> None:
        super().__init__(default_partitioner_cls=WebGPUPartitioner)
        reports.append(self.partitioners[0].report)


class _PlainTuple(torch.nn.Module):
    """A module whose result, a type like torch.return_types.median, is a tuple."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.module(*inputs))


class Export(stages.Export):
    """As torch exports by default: by tracing, not by reading bytecode."""

    def run(self, artifact: torch.nn.Module, inputs: Any) -> None:
        program = torch.export.export(
            artifact, inputs, dynamic_shapes=self.dynamic_shapes
        )
        result = program.call_spec.out_spec.type
        if result is not None and result.__module__ == "torch.return_types":
            # A .pte cannot name such a type, whichever backend made it.
            program = torch.export.export(_PlainTuple(artifact), inputs)
        self.exported_program = program


class Tester(TesterBase):
    __test__ = False

    def __init__(self, module: torch.nn.Module, inputs: Any, **options: Any) -> None:
        ours = {
            stages.StageType.EXPORT: Export,
            stages.StageType.TO_EDGE_TRANSFORM_AND_LOWER: Lower,
        }
        classes = TesterBase.default_stage_classes() | ours
        super().__init__(module, inputs, classes, **options)

    def export(self, export_stage: Any = None) -> Any:
        """As the suite does; what is exported for any size is quantized for it too.

        The suite quantizes before it says which sizes may change.
        """
        quantized = self.stages[stages.StageType.QUANTIZE]
        specs = export_stage.dynamic_shapes if export_stage is not None else None
        if quantized is not None and specs is not None:
            quantized.dynamic_shapes = specs
            quantized.run(self.original_module, self.example_inputs)
        return super().export(export_stage)

    def run_method_and_compare_outputs(
        self, *args: Any, inputs: Any = None, **options: Any
    ) -> Any:
        """As the suite does; a program of any size at a second size too.

        The suite itself runs such a program only at the size it was exported at.
        """
        super().run_method_and_compare_outputs(*args, inputs=inputs, **options)
        specs = self.stages[stages.StageType.EXPORT].dynamic_shapes
        if specs is not None:
            other = resized(self.example_inputs, specs)
            super().run_method_and_compare_outputs(*args, inputs=other, **options)
        return self

    @staticmethod
    def _calculate_reference_output(program: Any, inputs: Any) -> Any:
        # An in-place op must not change what the backend then gets.
        kept = pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, inputs)
        results = [arg for arg in program.graph.output_node().args[0] if arg]
        targets = [node.target for node in results]
        output = TesterBase._calculate_reference_output(program, kept)
        # The harness leaves a shim where it read a scale, and finds none again.
        for node, target in zip(results, targets):
            node.target = target
        return output

    def _compare_outputs(self, reference: Any, outputs: Any, *rest: Any) -> None:
        # A program returns the inputs that it changed in place before its results.
        lowered = self.stages[stages.StageType.TO_EDGE_TRANSFORM_AND_LOWER].artifact
        signature = lowered.exported_program().graph_signature
        changed = len(signature.user_inputs_to_mutate)
        TesterBase._compare_outputs(reference, outputs[changed:], *rest)


def resized(inputs: Any, specs: Any) -> tuple[torch.Tensor, ...]:
    """Random inputs with the first dynamic size made smaller, the others largest."""
    sizes: dict[str, int] = {}
    made = []
    for x, spec in zip(inputs, specs.values() if isinstance(specs, dict) else specs):
        shape = list(x.shape)
        for dim, size in spec.items():
            root = getattr(size, "root", size)
            smaller = root.min + (root.max - root.min) * 3 // 4
            sizes.setdefault(root.__name__, smaller if not sizes else root.max)
            value = sizes[root.__name__]
            shape[dim] = size.fn(value) if root is not size else value
        made.append(torch.randn(shape).to(x.dtype))
    return tuple(made)


def _cast(values: Any, dtype: torch.dtype) -> Any:
    return pytree.tree_map_only(
        torch.Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, values
    )


class HalfTester(Tester):
    """The same model and inputs in float16."""

    def __init__(self, module: torch.nn.Module, inputs: Any, **options: Any) -> None:
        super().__init__(
            copy.deepcopy(module).half(), _cast(inputs, torch.float16), **options
        )

    def run_method_and_compare_outputs(
        self, *args: Any, inputs: Any = None, **options: Any
    ) -> Any:
        given = None if inputs is None else _cast(inputs, torch.float16)
        return super().run_method_and_compare_outputs(*args, inputs=given, **options)

    @staticmethod
    def _calculate_reference_output(program: Any, inputs: Any) -> Any:
        try:
            return Tester._calculate_reference_output(program, inputs)
        except RuntimeError as error:
            if "not implemented for 'Half'" not in str(error):
                raise
        # Eager has no such kernel: the same in float32, rounded at the end.
        output = program.module().float()(*_cast(inputs, torch.float32))
        return _cast(output, torch.float16), None


class QuantizedTester(Tester):
    """Results may be one step off, as the harness grants what is quantized.

    Eager's own kernels, with and without mkldnn, are that far apart.
    """

    def run_method_and_compare_outputs(self, *args: Any, **options: Any) -> Any:
        options.setdefault("qtol", 1)
        return super().run_method_and_compare_outputs(*args, **options)


_traced: dict[Any, torch.fx.GraphModule] = {}
_trace = xnnpack_quantizer_utils._get_aten_graph_module_for_pattern


def _trace_once(pattern: Any, inputs: Any, is_cuda: bool) -> torch.fx.GraphModule:
    """The quantizer's patterns do not depend on the model; each takes a while."""
    cells = [cell.cell_contents for cell in pattern.fn.__closure__]
    key = (pattern.fn.__code__, *cells, is_cuda)
    if key not in _traced:
        _traced[key] = _trace(pattern, inputs, is_cuda)
    return copy.deepcopy(_traced[key])  # for matching changes it


xnnpack_quantizer_utils._get_aten_graph_module_for_pattern = _trace_once


class Quantize(stages.Quantize):
    """Static int8 as XNNPACK's users make it, of sizes that may change."""

    dynamic_shapes: Any = None

    def __init__(self) -> None:
        config = get_symmetric_quantization_config(is_per_channel=True)
        super().__init__(quantizer=XNNPACKQuantizer(), quantization_config=config)

    def run(self, artifact: torch.nn.Module, inputs: Any) -> None:
        program = torch.export.export(
            artifact, inputs, dynamic_shapes=self.dynamic_shapes
        )
        prepared = prepare_pt2e(program.module(), self.quantizer)
        prepared(*inputs)
        self.converted_graph = convert_pt2e(prepared)


FLOWS = (
    TestFlow("webgpu", backend="webgpu", tester_factory=Tester),
    TestFlow("webgpu_fp16", backend="webgpu", tester_factory=HalfTester),
    TestFlow(
        "webgpu_static_int8",
        backend="webgpu",
        tester_factory=QuantizedTester,
        quantize=True,
        quantize_stage_factory=Quantize,
    ),
)
