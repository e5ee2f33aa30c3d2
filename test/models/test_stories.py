"""stories15M: exported once with caches, in two runtimes and in an app without Python,
against eager PyTorch."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import apps
import driver
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
LONG = "Tom had a big red ball and a small blue ball. " * 3  # more than one call takes
TOKENS = 64
FILES = ("model.pte", "tokenizer.bin")


@pytest.fixture(scope="module")
def told(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, stories.Tokenizer, list[list[int]]]:
    """The exported program's folder, and eager's tokens for each prompt."""
    assert stories.DATA.exists(), "run scripts/setup.sh test"
    model, tokenizer = stories.load(stories.DATA, 128)
    data, partitioner = export_llm.export(
        model, 32, [stories.EOS], stories.BOS, portable=True
    )
    assert partitioner.report.complete, str(partitioner.report)
    assert len(delegates(data)) == 1
    folder = tmp_path_factory.mktemp("stories")
    (folder / "model.pte").write_bytes(data)
    tokenizer.write(folder / "tokenizer.bin")
    return (
        folder,
        tokenizer,
        [_eager(model, tokenizer, text) for text in (*PROMPTS, LONG)],
    )


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


@pytest.fixture(scope="module")
def story() -> Path:
    return driver.build_app(apps.EXAMPLES, "story")


def tell(
    program: Path, folder: Path, *options: str, files: tuple[str, ...] = FILES
) -> bytes:
    """What the app tells, on stdout; how fast is on stderr."""
    done = apps.run(program, *files, *options, folder=folder)
    assert done.returncode == 0, done.stderr
    assert re.search(rb"\nstory: \d+ tokens, [\d.]+ tokens per second\n", done.stderr)
    return done.stdout


def test_an_app_without_python_tells_what_eager_tells(
    told: tuple[Path, stories.Tokenizer, list[list[int]]], story: Path
) -> None:
    folder, tokenizer, expected = told
    options = ("--prompt", PROMPTS[-1], "--max-tokens", str(TOKENS), "--ids")
    ids = tell(story, folder, *options).split()
    assert [int(each) for each in ids] == expected[-2]
    assert len(tokenizer.encode(LONG)) > 32
    options = ("--prompt", LONG, "--max-tokens", str(TOKENS))
    shown = tell(story, folder, *options).decode(errors="replace")
    assert shown == LONG + tokenizer.decode(expected[-1]) + "\n"


def test_what_an_app_draws_depends_on_the_seed(
    told: tuple[Path, stories.Tokenizer, list[list[int]]], story: Path
) -> None:
    folder, *_ = told
    one, same, other = (
        tell(story, folder, *("--temperature", "0.9", "--max-tokens", "16"), *seed)
        for seed in (("--seed", "1"), ("--seed", "1"), ("--seed", "2"))
    )
    assert one == same
    assert one != other


def test_what_an_app_refuses(
    told: tuple[Path, stories.Tokenizer, list[list[int]]], story: Path
) -> None:
    folder, tokenizer, _ = told
    few = stories.Tokenizer(tokenizer.pieces[:300], tokenizer.scores[:300])
    few.write(folder / "few.bin")
    whole = (folder / "tokenizer.bin").read_bytes()
    (folder / "cut.bin").write_bytes(whole[:-1])
    for files, options, said in (
        (("none.pte", "tokenizer.bin"), (), "none.pte: must be a file that can be"),
        (("model.pte", "none.bin"), (), "none.bin: must be a file that can be read"),
        (("model.pte", "cut.bin"), (), "cut.bin: must be a tokenizer.bin, got"),
        (("model.pte", "model.pte"), (), "model.pte: must be a tokenizer.bin, got"),
        (("model.pte", "few.bin"), (), "few.bin: tokens must be 32000 as in model.pte"),
        (("cut.bin", "tokenizer.bin"), (), "cut.bin: load must succeed, got error"),
        (
            FILES,
            ("--prompt", "once " * 200),
            "prompt: must be shorter than the 128 tokens of the model's context, got",
        ),
    ):
        done = apps.run(story, *files, *options, folder=folder)
        assert done.returncode == 1
        assert f"story: {said}" in done.stderr.decode()
    for options in (("--max-tokens", "-1"), ("--seed", "x"), ("--prompt",), ("--no",)):
        done = apps.run(story, *FILES, *options, folder=folder)
        assert done.returncode == 2
        assert f"story: {options[0]}: must ".encode() in done.stderr
