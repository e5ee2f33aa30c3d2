"""transformers' own export of a decoder with a static cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf
from executorch.exir import to_edge_transform_and_lower
from harness import Program
from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM
from transformers_zoo import DECODER, ids

from executorch_webgpu import WebGPUPartitioner

# Positions that the cache holds.
ROOM = 16
LENGTH = torch.export.Dim("length", min=1, max=ROOM)
ANY_LENGTH = {"input_ids": {1: LENGTH}, "cache_position": {0: LENGTH}}


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    made = hf.LlamaForCausalLM(hf.LlamaConfig(**DECODER)).eval()
    made.generation_config.use_cache = True
    made.generation_config.cache_implementation = "static"
    return made


def lowered(model: torch.nn.Module, length: int, shapes: Any = None) -> Program:
    module = TorchExportableModuleForDecoderOnlyLM(
        model, batch_size=1, max_cache_len=ROOM
    )
    with torch.no_grad():
        exported = module.export(ids(1, length), dynamic_shapes=shapes)
    partitioner = WebGPUPartitioner()
    edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    program = Program(edge, partitioner)
    assert program.report.complete, str(program.report)
    return program


def check_calls(program: Program, model: torch.nn.Module, lengths: list[int]) -> None:
    """Calls with so many new tokens each give what eager gives without a cache."""
    tokens = ids(1, sum(lengths))
    with torch.no_grad():
        wanted = model(tokens, use_cache=False).logits
    end = 0
    for length in lengths:
        start, end = end, end + length
        (logits,) = program(tokens[:, start:end], torch.arange(start, end))
        torch.testing.assert_close(logits, wanted[:, start:end], rtol=1e-3, atol=1e-4)


def test_tokens_one_by_one_equal_eager(model: torch.nn.Module) -> None:
    check_calls(lowered(model, 1), model, [1] * 9)


def test_prompts_at_once_then_tokens_equal_eager(model: torch.nn.Module) -> None:
    program = lowered(model, 5, ANY_LENGTH)
    # Each begins at position 0, over what the one before has left in the cache.
    for lengths in ([7, 1, 1, 1], [ROOM], [1, 1, 4, 1, 3]):
        check_calls(program, model, lengths)
