"""stories15M: exported once with caches, in two runtimes, against eager PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from decoding import greedy
from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner
from executorch.runtime import Runtime

import executorch_webgpu
from executorch_webgpu.cli import delegates

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import export_llm
import llama
import stories

PROMPTS = (
    "Once upon a time",
    "Lily found a red box",
    "The dog was \u00e9mu. \u2603",  # characters that are not in the vocabulary
)
TOKENS = 64


@pytest.fixture(scope="module")
def told(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, stories.Tokenizer, list[list[int]]]:
    """The exported program's folder, and eager's tokens for each prompt."""
    assert stories.DATA.exists(), "run scripts/setup.sh test"
    model, tokenizer = stories.load(stories.DATA, 128)
    data, partitioner = export_llm.export(model, 32, [stories.EOS], stories.BOS)
    assert partitioner.report.complete, str(partitioner.report)
    assert len(delegates(data)) == 1
    folder = tmp_path_factory.mktemp("stories")
    (folder / "model.pte").write_bytes(data)
    tokenizer.write(folder / "tokenizer.bin")
    return folder, tokenizer, [_eager(model, tokenizer, text) for text in PROMPTS]


def _eager(model: llama.Llama, tokenizer: stories.Tokenizer, text: str) -> list[int]:
    for block in model.blocks:
        block.attention.k_cache.zero_()
        block.attention.v_cache.zero_()
    return greedy(model, tokenizer.encode(text), TOKENS)


def test_the_plain_runtime_tells_what_eager_tells(
    told: tuple[Path, stories.Tokenizer, list[list[int]]],
) -> None:
    folder, tokenizer, expected = told
    program = Runtime.get().load_program(str(folder / "model.pte"))
    method = program.load_method("forward")
    assert method is not None, executorch_webgpu.last_error()
    for text, tokens in zip(PROMPTS, expected):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == f"\n<s>\n {text}"
        assert greedy(lambda t, p: method.execute([t, p])[0], ids, TOKENS) == tokens
    assert "little girl named Lily" in tokenizer.decode(expected[0])


def test_the_text_runner_tells_what_eager_tells(
    told: tuple[Path, stories.Tokenizer, list[list[int]]],
) -> None:
    folder, tokenizer, expected = told
    paths = (str(folder / name) for name in ("model.pte", "tokenizer.bin"))
    runner = TextLLMRunner(*paths)
    config = GenerationConfig(
        max_new_tokens=TOKENS, temperature=0.0, echo=False, num_bos=1, num_eos=0
    )
    for text, tokens in zip(PROMPTS, expected):
        runner.reset()
        executorch_webgpu.reset_state()
        pieces: list[str] = []
        runner.generate(text, config, token_callback=pieces.append)
        assert "".join(pieces) == tokenizer.decode(tokens)
