"""examples/chat.py without a terminal, on a small model with random weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_llm import export_llm, llama, random_llama

CHAT = Path(__file__).parents[2] / "examples" / "chat.py"
CONTEXT = 256


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose tokens are the letters that a keyboard has."""
    special = ["<|im_start|>", "<|im_end|>"]
    letters = [chr(code) for code in range(33, 127)]
    tokens = [*special, "\u0120", "\u010a", *letters]
    model = random_llama(context=CONTEXT)
    tokens += [f"<unused{i}>" for i in range(model.config.vocab - len(tokens))]
    fields = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if t in special else 1 for t in tokens],
        "tokenizer.ggml.merges": [],
    }
    path = tmp_path_factory.mktemp("chat") / "small.pte"
    path.write_bytes(export_llm.export(model, 64, [1], 0)[0])
    file = SimpleNamespace(fields=fields)
    llama.write_tokenizer(file, path.with_name("tokenizer.json"))
    return path


def chat(
    *options: str, questions: str = "", code: int = 0
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, str(CHAT), *options],
        input=questions,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    return done


def test_a_conversation_without_a_terminal(program: Path) -> None:
    """Answers, and only they, are on stdout; a turn that does not fit is skipped."""
    questions = f"Hi\n\n{'long ' * CONTEXT}\nBye\n"
    done = chat("--program", str(program), "--max-tokens", "5", questions=questions)
    assert done.stdout.endswith("\n")
    assert not done.stdout.startswith(">")
    assert 2 <= done.stdout.count("\n") <= 2 + 2 * 5
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stderr.count("tokens/s prefill") == 2
    assert done.stderr.count(f"chat: the conversation must fit {CONTEXT} tokens") == 1
    for step in ("loading", "compiling", "ready"):
        assert step in done.stderr


def test_a_prompt_that_does_not_fit_is_one_line(program: Path) -> None:
    done = chat("--program", str(program), "--prompt", "x" * CONTEXT, code=1)
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"chat: the conversation must fit {CONTEXT} tokens, got")
    assert done.stdout == ""


@pytest.mark.parametrize("number", ["0", "-3"])
def test_a_count_of_tokens_is_positive(number: str) -> None:
    done = chat("--max-tokens", number, code=2)
    assert f"must be at least 1, got {number}" in done.stderr
