"""transformers' own export of a decoder with a static cache, token by token."""

from __future__ import annotations

import torch
import transformers as hf
from executorch.exir import to_edge_transform_and_lower
from harness import Program
from transformers.integrations.executorch import TorchExportableModuleWithStaticCache
from transformers_zoo import DECODER, ids

from executorch_webgpu import WebGPUPartitioner


def test_tokens_one_by_one_equal_eager() -> None:
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**DECODER)).eval()
    model.generation_config.use_cache = True
    model.generation_config.cache_implementation = "static"
    module = TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=16)
    inputs = {"input_ids": ids(1, 1), "cache_position": torch.tensor([0])}
    with torch.no_grad():
        exported = torch.export.export(module, (), kwargs=inputs, strict=True)
    partitioner = WebGPUPartitioner()
    edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    program = Program(edge, partitioner)
    assert program.report.complete, str(program.report)
    tokens = ids(1, 9)
    with torch.no_grad():
        wanted = model(tokens, use_cache=False).logits[0]
    for position in range(9):
        (logits,) = program(
            tokens[:, position : position + 1], torch.tensor([position])
        )
        torch.testing.assert_close(logits[0, 0], wanted[position], rtol=1e-3, atol=1e-4)
