"""ExecuTorch's own Llama and its own export flow, with our partitioner."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.examples.models.llama import export_llama_lib
from executorch.examples.models.llama.llama_transformer import construct_transformer
from executorch.examples.models.llama.model_args import ModelArgs
from executorch.extension.llm.export.builder import LLMEdgeManager
from executorch.extension.llm.export.config.llm_config import DtypeOverride, LlmConfig
from executorch.runtime import Runtime

import executorch_webgpu
from executorch_webgpu import WebGPUPartitioner
from executorch_webgpu.cli import delegates
from executorch_webgpu.ir import serialize

CONTEXT = 32
PARAMS: dict[str, Any] = {
    "dim": 160,
    "n_heads": 10,
    "n_kv_heads": 2,
    "vocab_size": 101,
    "hidden_dim": 192,
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
}


def export(folder: Path, **options: Any) -> tuple[LLMEdgeManager, bytes]:
    """What `export_llm` does, up to the partitioner; weights are random."""
    params = {**PARAMS, "n_layers": options.get("layers", 1)}
    (folder / "params.json").write_text(json.dumps(params))
    torch.manual_seed(0)
    model = construct_transformer(ModelArgs(**params))
    weights = {k: torch.randn(v.shape) * 0.1 for k, v in model.state_dict().items()}
    torch.save(weights, folder / "weights.pth")
    config = LlmConfig()
    config.base.params = str(folder / "params.json")
    config.base.checkpoint = str(folder / "weights.pth")
    config.export.output_dir = str(folder)
    config.export.max_seq_length = config.export.max_context_length = CONTEXT
    config.model.enable_dynamic_shape = True
    config.model.use_kv_cache = options.get("cache", True)
    config.model.use_sdpa_with_kv_cache = options.get("custom", False)
    config.model.dtype_override = DtypeOverride[options.get("dtype", "fp32")]
    config.quantization.qmode = options.get("qmode")
    if config.quantization.qmode:
        config.quantization.group_size = 32
        config.quantization.embedding_quantize = "4,32"
    manager = export_llama_lib._prepare_for_llama_export(config).export()
    partitioner = WebGPUPartitioner()
    manager.to_edge_transform_and_lower([partitioner]).to_executorch()
    assert partitioner.report.complete, str(partitioner.report)
    return manager, bytes(manager.export_program.buffer)


def ops(data: bytes) -> Counter[str]:
    ((_, blob),) = delegates(data)
    return Counter(call.op for call in serialize.read(blob).calls)


def steps(manager: LLMEdgeManager, method: Any, tolerance: float) -> None:
    """A prompt and several tokens, each against eager; the position plans nothing."""
    for name, buffer in manager.model.named_buffers():
        if "_cache" in name:
            buffer.zero_()
    tokens, position = [7, 8, 9, 10, 11], 0
    plans = []
    for _ in range(6):
        inputs = [torch.tensor([tokens])]
        if manager.use_kv_cache:
            inputs.append(torch.tensor([position]))
        options = [{"input_pos": x} for x in inputs[1:]]
        with torch.no_grad():
            expected = manager.model(inputs[0], *options)
        result = method.execute(inputs)[0]
        torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)
        plans.append(executorch_webgpu.stats().plans)
        position += len(tokens)
        made = [int(expected[0].argmax())]
        tokens = made if manager.use_kv_cache else tokens + made
    assert not manager.use_kv_cache or plans[-1] == plans[1]


# Options of the export, calls of the graph, limit of the difference.
CASES: dict[str, tuple[dict[str, Any], dict[str, int], float]] = {
    "plain": ({"cache": False}, {"webgpu.rotary": 1}, 1e-5),
    "cache": (
        {"layers": 2},
        {"webgpu.rotary": 2, "webgpu.cache_put": 4, "webgpu.attend_cached": 2},
        1e-5,
    ),
    "custom ops": (
        {"custom": True, "qmode": "8da4w"},
        {
            "webgpu.rotary": 1,
            "llama.update_cache.default": 2,
            "llama.custom_sdpa.default": 1,
            # Query, key and value are one, of one rounded input; so are gate and up's.
            "webgpu.linear_rounded": 6,
            "quantized_decomposed.embedding_4bit.dtype": 1,
        },
        1e-4,
    ),
    "8-bit weights": (
        {"qmode": "int8"},
        {
            # Query, key and value are one.
            "webgpu.linear_packed": 4,
            "webgpu.gated_linear_packed": 1,
            "webgpu.attend_cached": 1,
        },
        1e-4,
    ),
    "half": (
        {"dtype": "fp16"},
        {"webgpu.rotary": 1, "webgpu.cache_put": 2, "webgpu.attend_cached": 1},
        4e-3,
    ),
}


# Without a cache it has the layers of Qwen3 in test_transformers.py, and in halves
# those of "cache", whose ops test/ops has in halves.
_LIKE_OTHERS = ("plain", "half")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if name in _LIKE_OTHERS else ())
        for name in CASES
    ],
)
def test_all_of_it_is_delegated_and_equals_eager(name: str, tmp_path: Path) -> None:
    options, expected, tolerance = CASES[name]
    manager, data = export(tmp_path, **options)
    found = ops(data)
    assert {op: found[op] for op in expected} == expected, found
    program = Runtime.get().load_program(data)
    method = program.load_method("forward")
    assert method is not None, executorch_webgpu.last_error()
    steps(manager, method, tolerance)
    if not manager.use_kv_cache:
        return
    for tokens, start in (([[1]], CONTEXT), ([[1, 2, 3]], CONTEXT - 2)):
        with pytest.raises(RuntimeError):
            method.execute([torch.tensor(tokens), torch.tensor([start])])
    assert method.execute([torch.tensor([[1]]), torch.tensor([CONTEXT - 1])])
