"""`etwgpu export`: models from everywhere, what is told of them, and what is wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llama
import numpy as np
import pytest
import torch
import transformers as hf
from executorch.runtime import Runtime
from test_cli import refused, told
from transformers_zoo import DECODER, SMALL

from executorch_webgpu import cli, last_error
from executorch_webgpu.cli.program import methods

MODELS = """
import torch

def small():
    torch.manual_seed(0)
    return torch.nn.Linear(8, 4), (torch.randn(3, 8),)

def ranged():
    batch = torch.export.Dim("batch", min=1, max=6)
    return torch.nn.Linear(8, 4), (torch.randn(3, 8),), ({0: batch},)

def many():
    class Sum(torch.nn.Module):
        def forward(self, x, *others):
            return x + sum(others)
    return Sum(), (torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 3))

def wide():
    class Wide(torch.nn.Module):
        def forward(self, x):
            return torch.mm(x, x).double() * 2.5
    return Wide(), (torch.randn(4, 4),)

def branching():
    class Branching(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x
    return Branching(), (torch.ones(2),)

def nothing():
    return torch.nn.Linear(8, 4)

def broken():
    raise KeyError("weights")

number = 3
"""


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "zoo_of_export.py").write_text(MODELS)
    (tmp_path / "broken_of_export.py").write_text("import no_such_package")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.export, "_quiet", lambda: None)  # for the whole process
    path = list(sys.path)
    yield tmp_path / "model.pte"
    sys.path[:] = path
    sys.modules.pop("zoo_of_export", None)


def loaded(path: Path) -> Any:
    program = Runtime.get().load_program(str(path))
    method = program.load_method("forward")
    assert method is not None, last_error()
    return program, method


def test_a_functions_module(out, capsys):
    text = told(capsys, "export", "zoo_of_export:small", "-o", str(out))
    assert "aten.linear.default      1  WebGPU" in text
    assert f"{out}: {out.stat().st_size / 1e3:.3g} kB\nnext: etwgpu run {out}\n" in text
    x = torch.randn(3, 8)
    torch.manual_seed(0)
    with torch.no_grad():
        torch.testing.assert_close(
            loaded(out)[1].execute([x])[0], torch.nn.Linear(8, 4)(x)
        )
    assert told(capsys, "run", str(out)).startswith("output 0: float32 [3, 4]")


def test_sizes_that_vary_by_option_or_function(out, capsys):
    words = ("--dynamic", "input:0=1..6")
    told(capsys, "export", "zoo_of_export.py:small", "-o", str(out), *words)
    for size in (1, 6):
        (result,) = loaded(out)[1].execute([torch.ones(size, 8)])
        assert result.shape == (size, 4)
    told(capsys, "export", "zoo_of_export:ranged", "-o", str(out))
    assert "in [1, 6]" in told(capsys, "inspect", str(out))
    words = ("--dynamic", "x:0=1..4", "1:0=1..4", "2:0=1..4")
    told(capsys, "export", "zoo_of_export:many", "-o", str(out), *words)
    (result,) = loaded(out)[1].execute([torch.ones(4, 3)] * 3)
    assert torch.equal(result, torch.full((4, 3), 3.0))


def test_json_has_the_report_the_size_and_the_time(out, capsys):
    words = ("--json", "--portable", "--recipe", "fp16")
    text = told(capsys, "export", "zoo_of_export:small", "-o", str(out), *words)
    content = json.loads(text)
    assert content["bytes"] == out.stat().st_size
    assert content["on_cpu"] == []
    assert content["next"] == [f"etwgpu run {out}"]
    seconds = content["cpu_seconds"]
    assert set(seconds) == {"model", "quantize", "torch.export", "ExecuTorch", "WebGPU"}
    assert all(seconds[name] > 0 for name in ("torch.export", "ExecuTorch", "WebGPU"))
    assert "runs in C++: yes" in told(capsys, "inspect", str(out))


def test_what_stays_on_the_cpu_is_told(out, capsys):
    content = json.loads(
        told(capsys, "export", "zoo_of_export:wide", "-o", str(out), "--json")
    )
    assert any("float64" in each["reason"] for each in content["on_cpu"])
    text = told(capsys, "export", "zoo_of_export:wide", "-o", str(out), "--verbose")
    assert "CPU: " in text
    assert "\nCPU seconds: " in text
    assert "\n    preprocess for WebGPU " in text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "model"


def check_decoding(out: Path, wanted: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A prompt and two tokens give the logits that eager gives after all of them."""
    tokens = torch.randint(3, 90, (1, 7))
    program, method = loaded(out)
    for start, end in ((0, 5), (5, 6), (6, 7)):
        (logits,) = method.execute([tokens[:, start:end], torch.arange(start, end)])
        with torch.no_grad():
            expected = wanted(tokens[:, :end])
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    assert program.load_method("get_max_context_len").execute([])[0] == 32
    assert program.load_method("get_max_seq_len").execute([])[0] == 8


def test_a_language_model_of_transformers_keeps_its_cache(out, folder, capsys):
    model = hf.LlamaForCausalLM(
        hf.LlamaConfig(**{**DECODER, "num_hidden_layers": 1})
    ).eval()
    model.save_pretrained(folder)
    words = ("--context", "32", "--prompt", "8")
    text = told(capsys, "export", str(folder), "-o", str(out), *words)
    assert f"next: etwgpu bench {out} --llm" in text
    (method,) = (m for m in methods(out.read_bytes()) if m.name == "forward")
    assert method.computed_on_cpu == []
    check_decoding(out, lambda x: model(x, use_cache=False).logits[:, -1:])


def test_an_encoder_and_a_model_of_pictures(out, folder, capsys):
    config = hf.BertConfig(**{**SMALL, "num_hidden_layers": 1})
    model = hf.BertModel(config).eval()
    model.save_pretrained(folder)
    told(capsys, "export", str(folder), "-o", str(out), "--recipe", "fp16")
    ids = torch.randint(3, 90, (1, 11))
    with torch.no_grad():
        wanted = model(ids).last_hidden_state
    result = loaded(out)[1].execute([ids, torch.ones_like(ids)])[0]
    torch.testing.assert_close(result, wanted, rtol=0.02, atol=0.02)
    config = hf.ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=48, image_size=32, patch_size=8,
    )  # fmt: skip
    hf.ViTForImageClassification(config).save_pretrained(folder)
    told(capsys, "export", str(folder), "-o", str(out))
    assert "float32 [1, 3, 32, 32]" in told(capsys, "inspect", str(out))


def write_gguf(path: Path) -> None:
    """A Llama of one layer with random weights, and a byte-pair tokenizer."""
    import gguf

    words = [f"w{n}" for n in range(93)] + list("abcde") + ["ab"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_block_count(1)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(words)
    writer.add_token_types([1] * len(words))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    numbers = np.random.default_rng(0)
    shapes = {
        "token_embd": (len(words), 64), "output": (len(words), 64),
        "output_norm": (64,),
        "blk.0.attn_norm": (64,), "blk.0.ffn_norm": (64,),
        "blk.0.attn_q": (64, 64), "blk.0.attn_k": (32, 64), "blk.0.attn_v": (32, 64),
        "blk.0.attn_output": (64, 64), "blk.0.ffn_gate": (96, 64),
        "blk.0.ffn_up": (96, 64), "blk.0.ffn_down": (64, 96),
    }  # fmt: skip
    for name, shape in shapes.items():
        values = numbers.standard_normal(shape).astype(np.float32) * 0.1
        writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_with_its_tokenizer(out, tmp_path, capsys):
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    words = ("--context", "32", "--prompt", "8")
    told(capsys, "export", str(path), "-o", str(out), *words)
    model, _ = llama.load(path, 32)  # reads the file itself
    check_decoding(out, lambda x: model(x, torch.arange(x.shape[1])))
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    assert tokenizer["model"]["vocab"]["ab"] == 98


WRONG = {
    "no_such_module:f": "no_such_module must be a module that can be imported, got",
    "none.py:f": "none.py must be a module that can be imported, got FileNotFoundError",
    "broken_of_export:f": "got ModuleNotFoundError: No module named 'no_such_package'",
    "zoo_of_export:none": "zoo_of_export must have a function none, got none",
    "zoo_of_export:number": "zoo_of_export must have a function number, got none",
    "zoo_of_export:nothing": "must return (module, inputs) or (module, inputs,"
    " dynamic_shapes), got Linear",
    "zoo_of_export:broken": "zoo_of_export:broken() must return a module and its"
    " inputs, got KeyError: 'weights'",
    "zoo_of_export:branching": "torch.export: zoo_of_export:branching must be a model",
    "model.onnx": "must be module:function, a folder with a config.json or a .gguf"
    " file, got model.onnx",
    "none.gguf": "none.gguf must be a file, got none",
    "empty": "empty must have a config.json, got none",
    "speech": "got WhisperForConditionalGeneration; write a function that returns",
    "strange": "must name a class of transformers in `architectures`, got NoModel",
    "unsaved": "unsaved must have the weights of LlamaForCausalLM, got",
}


@pytest.mark.parametrize("what", WRONG)
def test_a_model_that_cannot_be_exported(what, out, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    kinds = {
        "speech": ("whisper", "WhisperForConditionalGeneration"),
        "strange": ("bert", "NoModel"),
        "unsaved": ("llama", "LlamaForCausalLM"),
    }
    for name, (kind, architecture) in kinds.items():
        (tmp_path / name).mkdir()
        config = {"model_type": kind, "architectures": [architecture]}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    assert WRONG[what] in refused(capsys, "export", what, "-o", str(out))
    assert not out.exists()


OPTIONS = {
    "--dynamic 0=1..3": "must be input:dim=min..max, got 0=1..3",
    "--dynamic y:0=1..3": "must name one of input, got y",
    "--dynamic input:2=1..3": "must be of a tensor with that dimension, got [3, 8]",
    "--dynamic input:0=4..9": "input:0=4..9 must hold the example's size, got 3",
    "--dynamic input:0=3..2": "must be 1 <= min <= max, got input:0=3..2",
    "--dynamic input:1=1..9": "torch.export: zoo_of_export:small must be a model for",
    "--dynamic input:0=1..9 --recipe int8": "take int8_dynamic",
    "--prompt 0": "--prompt: must be at least 1",
    "-o no_folder/m.pte": "-o: must be in a folder that exists, got no_folder/m.pte",
    "-o /dev/full": "-o: /dev/full must be written whole, got: No space left on device",
}


@pytest.mark.parametrize("options", OPTIONS)
def test_options_that_cannot_be(options, out, capsys):
    words = ("export", "zoo_of_export:small", "-o", str(out), *options.split())
    assert OPTIONS[options] in refused(capsys, *words)
    assert not out.exists()


def test_a_gguf_file_needs_its_package(out, tmp_path, capsys, monkeypatch):
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    line = refused(capsys, "export", "tiny.gguf", "-o", str(out))
    assert "tiny.gguf must be a GGUF file that transformers reads, got" in line
    monkeypatch.setattr(hf.utils, "is_gguf_available", lambda: False)
    line = refused(capsys, "export", "tiny.gguf", "-o", str(out))
    assert line.endswith("needs the package gguf, got none; run `pip install gguf`")
