"""A published classifier in static int8, by what it sees in photographs.

A sum between two quantized values may round to either, and later layers move with it:
eager, with and without mkldnn, is up to seven integers from the same graph computed in
float64. So that graph is the reference, and eager's distance from it the limit.
"""

from __future__ import annotations

from typing import Any

import models
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from executorch.exir import to_edge_transform_and_lower
from harness import Program
from torch.fx import Interpreter
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from executorch_webgpu import WebGPUPartitioner

PICTURES = ("chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png")
Q = torch.ops.quantized_decomposed


class Exact(Interpreter):
    """A quantized graph in float64."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is Q.quantize_per_tensor.default:
            x, scale, zero, low, high, _ = args
            return (torch.round(x.double() / scale) + zero).clamp(low, high)
        if target is Q.dequantize_per_tensor.default:
            x, scale, zero, *_ = args
            return (x.double() - zero) * scale
        if target is Q.dequantize_per_channel.default:
            x, scales, zeros, axis, *_ = args
            shape = [-1 if dim == axis else 1 for dim in range(x.dim())]
            return (x.double() - zeros.view(shape)) * scales.double().view(shape)
        return super().call_function(target, tuple(map(_double, args)), kwargs)


def _double(arg: Any) -> Any:
    is_float = isinstance(arg, torch.Tensor) and arg.is_floating_point()
    return arg.double() if is_float else arg


def test_classifier_sees_what_eager_sees() -> None:
    pictures = [models.picture(name) for name in PICTURES]
    config = get_symmetric_quantization_config(is_per_channel=True)
    with torch.no_grad():
        graph = torch.export.export(models.classifier(), (pictures[0],)).module()
        prepared = prepare_pt2e(graph, XNNPACKQuantizer().set_global(config))
        for picture in pictures:
            prepared(picture)
        converted = convert_pt2e(prepared)
        exported = torch.export.export(converted, (pictures[0],))
        partitioner = WebGPUPartitioner()
        edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
        program = Program(edge, partitioner)
        assert program.report.complete, str(program.report)
        ours = eager = 0.0
        for picture in pictures:
            (result,) = program(picture)
            exact = Exact(converted).run(picture)
            assert exact.argmax() in result.topk(5).indices
            assert result.argmax() in exact.topk(5).indices
            ours += float((result - exact).norm())
            eager += float((converted(picture) - exact).norm())
        assert ours < 1.5 * eager
