"""The examples of docs/export.md, and of export_llm in docs/llm.md, run."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.examples.models.llama.llama_transformer import construct_transformer
from executorch.examples.models.llama.model_args import ModelArgs
from executorch.runtime import Runtime
from transformers.exporters import exporter_executorch

from executorch_webgpu import cli, last_error
from executorch_webgpu.cli.program import methods

DOCS = Path(__file__).resolve().parent.parent / "docs"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.export, "_quiet", lambda: None)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "classifier", raising=False)
    table = dict(exporter_executorch._BACKEND_PREPARE)
    monkeypatch.setattr(exporter_executorch, "_BACKEND_PREPARE", table)
    return tmp_path


def run(path: Path, *inputs: torch.Tensor) -> list[torch.Tensor]:
    program = Runtime.get().load_program(str(path))
    method = program.load_method("forward")
    assert method is not None, last_error()
    (found,) = (m for m in methods(path.read_bytes()) if m.name == "forward")
    # One reads a position, which is an integer.
    assert set(found.computed_on_cpu) <= {"aten::select_copy.int_out"}
    return [each.clone() for each in method.execute(inputs)]


def test_the_page_on_export(folder, capsys):
    first, *others = blocks("export.md", "python")
    assert first.startswith("# classifier.py\n")
    (folder / "classifier.py").write_text(first)
    text = (DOCS / "export.md").read_text(encoding="utf-8")
    ((command, printed),) = re.findall(r"^\$ (etwgpu .*?)\n(.*?)```", text, re.S | re.M)
    assert cli.main(command.split()[1:]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out == printed
    assert run(folder / "model.pte", torch.ones(9, 64))[0].shape == (9, 4)
    names: dict[str, Any] = {}
    for block in others:
        exec(block, names)
    x = torch.randn(5, 64)
    with torch.no_grad():
        wanted = names["model"](x)
    (result,) = run(folder / "model.pte", x)
    torch.testing.assert_close(result, wanted, rtol=0.01, atol=0.01)
    ids = torch.tensor([[3, 2, 1]])
    with torch.no_grad():
        wanted = names["bert"](ids).last_hidden_state
    torch.testing.assert_close(
        run(folder / "bert.pte", ids)[0], wanted, rtol=1e-3, atol=1e-4
    )
    assert (folder / "model.bpte").read_bytes()[4:6] == b"BP"


def test_a_bundle_with_other_outputs_is_not_verified(folder):
    first, recipe, _, bundle = blocks("export.md", "python")
    (folder / "classifier.py").write_text(first)
    names: dict[str, Any] = {}
    exec(recipe, names)
    wrong = bundle.replace("[model(*inputs)]", "[model(*inputs) + 1]")
    assert wrong != bundle
    with pytest.raises(RuntimeError):
        exec(wrong, names)


def test_the_flow_of_export_llm(folder):
    params = {
        "dim": 160, "n_heads": 10, "n_kv_heads": 2, "vocab_size": 101, "n_layers": 1,
        "hidden_dim": 192, "norm_eps": 1e-5,
    }  # fmt: skip
    (folder / "params.json").write_text(json.dumps(params))
    model = construct_transformer(ModelArgs(**params))
    torch.save(model.state_dict(), folder / "weights.pth")
    (settings,) = blocks("llm.md", "yaml")
    (folder / "llm.yaml").write_text(settings)
    (flow,) = (block for block in blocks("llm.md", "python") if "llm.yaml" in block)
    names: dict[str, Any] = {}
    exec(flow, names)
    tokens, start = torch.tensor([[7, 8, 9]]), torch.tensor([0])
    (logits,) = run(folder / "llama.pte", tokens, start)
    eager = names["manager"].model
    for name, buffer in eager.named_buffers():
        if "_cache" in name:
            buffer.zero_()
    with torch.no_grad():
        wanted = eager(tokens, {"input_pos": start})
    torch.testing.assert_close(logits, wanted, rtol=1e-4, atol=1e-4)
