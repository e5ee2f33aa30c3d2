"""transformers' own ExecuTorch exporter, with this backend in its table."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers as hf
from executorch.runtime import Runtime
from torch.utils import _pytree as pytree
from transformers.exporters import exporter_executorch
from transformers.exporters.utils import decompose_prefill_decode
from transformers_zoo import DECODER, SMALL, ids

import executorch_webgpu
from executorch_webgpu.cli import cpu_ops, delegates
from executorch_webgpu.errors import WebGPUError


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    made = dict(exporter_executorch._BACKEND_PREPARE)
    monkeypatch.setattr(exporter_executorch, "_BACKEND_PREPARE", made)
    executorch_webgpu.register_with_transformers()
    return made


def exported(model: torch.nn.Module, inputs: dict[str, Any]) -> Any:
    exporter = exporter_executorch.ExecutorchExporter()
    manager = exporter.export(model, inputs, config={"backend": "webgpu"})
    data = bytes(manager.buffer)
    assert len(delegates(data)) == 1
    # An input that is changed is written back by ExecuTorch.
    assert set(cpu_ops(data)["forward"]) <= {"aten::copy_"}
    program = Runtime.get().load_program(data)
    return program, program.load_method("forward")


def test_an_encoder_equals_eager(table):
    model = hf.BertModel(hf.BertConfig(**{**SMALL, "num_hidden_layers": 1})).eval()
    inputs = {"input_ids": ids(2, 7)}
    _, method = exported(model, inputs)
    with torch.no_grad():
        wanted = model(**inputs).last_hidden_state
    result = method.execute(pytree.tree_leaves(inputs))[0]
    torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-5)


def test_a_step_with_a_static_cache_equals_eager(table):
    config = hf.LlamaConfig(**{**DECODER, "num_hidden_layers": 1})
    model = hf.LlamaForCausalLM(config).eval()
    settings = hf.GenerationConfig(cache_implementation="static", max_cache_len=16)
    parts = decompose_prefill_decode(model, {"input_ids": ids(1, 5)}, settings)
    _, inputs = parts["decode"]
    with torch.no_grad():
        wanted = model(**copy.deepcopy(inputs)).logits
    _, method = exported(model, copy.deepcopy(inputs))
    # Exporting has made caches lists of tensors; flags are no inputs.
    leaves = pytree.tree_leaves(inputs)
    results = method.execute([x for x in leaves if isinstance(x, torch.Tensor)])
    (logits,) = (each for each in results if each.shape == wanted.shape)
    torch.testing.assert_close(logits, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("other", [[], {}, {"xnnpack": print}, None])
def test_another_table_is_an_error_and_stays_as_it_is(monkeypatch, other):
    before = copy.copy(other)
    monkeypatch.setattr(exporter_executorch, "_BACKEND_PREPARE", other)
    with pytest.raises(WebGPUError, match="must be a dict of functions of"):
        executorch_webgpu.register_with_transformers()
    assert other == before
