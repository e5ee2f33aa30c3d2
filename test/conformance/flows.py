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
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch.utils import _pytree as pytree

from executorch_webgpu import WebGPUPartitioner
from executorch_webgpu.partitioner import Report

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


class HalfTester(Tester):
    """The same model and inputs in float16."""

    def __init__(self, module: torch.nn.Module, inputs: Any, **options: Any) -> None:
        halved = pytree.tree_map_only(
            torch.Tensor, lambda x: x.half() if x.is_floating_point() else x, inputs
        )
        super().__init__(copy.deepcopy(module).half(), halved, **options)


def quantize() -> stages.Quantize:
    config = get_symmetric_quantization_config(is_per_channel=True)
    return stages.Quantize(quantizer=XNNPACKQuantizer(), quantization_config=config)


FLOWS = (
    TestFlow("webgpu", backend="webgpu", tester_factory=Tester),
    TestFlow("webgpu_fp16", backend="webgpu", tester_factory=HalfTester),
    TestFlow(
        "webgpu_static_int8",
        backend="webgpu",
        tester_factory=Tester,
        quantize=True,
        quantize_stage_factory=quantize,
    ),
)
