"""ExecuTorch's export recipes: each on a small model, in the standard runtime."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from executorch.export import ExportRecipe, ExportSession, export, recipe_registry
from executorch.runtime import Runtime
from torchao.quantization import (
    Int8DynamicActivationIntxWeightConfig,
    IntxWeightOnlyConfig,
    quantize_,
)
from torchao.quantization.granularity import PerAxis, PerGroup

from executorch_webgpu import WebGPUPartitioner, WebGPURecipeType, last_error
from executorch_webgpu.cli import cpu_ops, delegates
from executorch_webgpu.ir import serialize
from executorch_webgpu.portable import serialize as portable

X = torch.linspace(-1, 1, 3 * 64).reshape(3, 64)


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 5)
    ).eval()


def made(recipe: WebGPURecipeType, **kwargs: Any) -> tuple[ExportSession, bytes]:
    wanted = ExportRecipe.get_recipe(recipe, **kwargs)
    session = export(network(), [(X,)], wanted)
    (partitioner,) = wanted.lowering_recipe.partitioners
    assert isinstance(partitioner, WebGPUPartitioner)
    assert partitioner.report.complete, str(partitioner.report)
    buffer = bytes(session.get_pte_buffer())
    assert cpu_ops(buffer) == {"forward": []}
    return session, buffer


def run(buffer: bytes, *inputs: torch.Tensor) -> torch.Tensor:
    program = Runtime.get().load_program(buffer)
    method = program.load_method("forward")
    assert method is not None, last_error()
    (result,) = method.execute(inputs)
    return result.clone()


def ops(buffer: bytes) -> Counter[str]:
    ((_, blob),) = delegates(buffer)
    return Counter(call.op for call in serialize.read(blob).calls)


def weight_types(buffer: bytes) -> set[str]:
    ((_, blob),) = delegates(buffer)
    graph = serialize.read(blob)
    return {v.dtype.label for v in graph.values if v.data_key and len(v.shape) > 1}


def test_all_recipes_are_registered_under_the_backends_name():
    assert set(recipe_registry.get_supported_recipes("webgpu")) == set(WebGPURecipeType)
    assert WebGPURecipeType["8DA4W"] is WebGPURecipeType.INT8_DYNAMIC_ACT_INT4_WEIGHT


def test_fp32_is_eager():
    _, buffer = made(WebGPURecipeType.FP32)
    with torch.no_grad():
        torch.testing.assert_close(run(buffer, X), network()(X))


def test_fp16_computes_in_halves_between_float32():
    _, buffer = made(WebGPURecipeType.FP16)
    assert weight_types(buffer) == {"float16"}
    result = run(buffer, X)
    assert result.dtype is torch.float32
    with torch.no_grad():
        wanted = network().half()(X.half()).float()
        assert not torch.equal(wanted, network()(X))
    torch.testing.assert_close(result, wanted, rtol=2e-3, atol=1e-3)


QUANTIZED = {
    "INT8_DYNAMIC": (
        Int8DynamicActivationIntxWeightConfig(torch.int8, PerAxis(0)),
        "webgpu.linear_rounded",
    ),
    "INT4_WEIGHT_ONLY": (
        IntxWeightOnlyConfig(torch.int4, PerGroup(16)),
        "webgpu.linear_packed",
    ),
    "8DA4W": (
        Int8DynamicActivationIntxWeightConfig(torch.int4, PerGroup(16)),
        "webgpu.linear_rounded",
    ),
}


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_weights_are_those_of_torchao(name):
    config, op = QUANTIZED[name]
    groups = {} if name == "INT8_DYNAMIC" else {"group_size": 16}
    _, buffer = made(WebGPURecipeType[name], **groups)
    assert ops(buffer)[op] == 2
    reference = network()
    quantize_(reference, config)
    with torch.no_grad():
        torch.testing.assert_close(run(buffer, X), reference(X), rtol=1e-4, atol=1e-4)
        assert not torch.allclose(reference(X), network()(X), rtol=1e-4, atol=1e-4)


def test_static_int8_is_calibrated_with_what_it_is_given():
    """Against the graph that the recipe's own pipeline has quantized."""
    samples = [(X,), (2 * X,)]
    session, buffer = made(WebGPURecipeType.INT8_STATIC, calibration_inputs=samples)
    stages = session.get_stage_artifacts()
    (quantized,) = (a for stage, a in stages.items() if stage.name == "QUANTIZE")
    reference = quantized.data["forward"]
    (scale,) = {
        node.args[1]
        for node in reference.graph.output_node().all_input_nodes
        if "dequantize_per_tensor" in str(node.target)
    }
    wanted = reference(X)
    assert wanted.unique().numel() > 3
    assert float((run(buffer, X) - wanted).abs().max()) <= 1.001 * scale
    assert ops(buffer)["webgpu.linear_codes"] == 2
    _, uncalibrated = made(WebGPURecipeType.INT8_STATIC)
    assert not torch.equal(run(uncalibrated, X), run(buffer, X))


def test_layers_that_groups_do_not_divide_stay_and_are_named(caplog):
    with caplog.at_level("WARNING", "executorch_webgpu"):
        _, buffer = made(WebGPURecipeType.INT4_WEIGHT_ONLY)
    assert ops(buffer)["webgpu.linear_packed"] == 1
    (said,) = (m for m in caplog.messages if "group_size" in m)
    assert (
        said == "2 is not quantized: group_size must divide its columns, got 32 and 48"
    )


def test_the_callers_model_is_left_alone():
    model = network()
    before = copy.deepcopy(model.state_dict())
    export(model, [(X,)], ExportRecipe.get_recipe(WebGPURecipeType.FP16))
    after = model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert model(X).dtype is torch.float32


def test_options_of_the_partitioner_and_errors():
    _, buffer = made(WebGPURecipeType.FP32, portable=True)
    ((_, blob),) = delegates(buffer)
    assert portable.section(blob) is not None
    with pytest.raises(ValueError, match=r"webgpu_fp32: .*'bits'"):
        ExportRecipe.get_recipe(WebGPURecipeType.FP32, bits=3)
    with pytest.raises(ValueError, match="group_size must be a positive integer"):
        ExportRecipe.get_recipe(WebGPURecipeType["8DA4W"], group_size="all")
