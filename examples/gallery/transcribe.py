"""Whisper tiny.en: up to half a minute of sound in, its text out, token by token.

`encode` takes samples as they are: the log-mel spectrogram is part of the program. It
leaves the keys and values that all steps of `decode` attend to, which stay on the GPU.
`decode` takes a token and its position, and gives the next one; keys and values of the
tokens before are its states. Weights of linear layers have 8 bits.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import llama
import numpy as np
import torch
import torch.nn.functional as F
from published import whisper
from published.files import package_file, speech
from tokenizers import Tokenizer
from torch import nn

from .eight_bit import Linear, quantize, quantized
from .shared import PROGRAM, Loaded, Page, export, port, size
from .sounds import RATE, write_wav

HEAD = whisper.WIDTH // whisper.HEADS
HOP, WINDOW = 160, 400
SAMPLES = 2 * HOP  # of one state of the encoder
LEAST, MOST = 50, 1500  # states: one second, and the half minute it was trained with
CONTEXT = 224  # tokens of a text
FIRST = [whisper.START, whisper.NO_TIMESTAMPS]


class Spectrogram(nn.Module):
    """Samples [1, n * HOP] to a log-mel spectrogram [1, 80, n]: the Fourier transform
    of a window is a convolution with cosines and sines."""

    def __init__(self) -> None:
        super().__init__()
        window = torch.hann_window(WINDOW, dtype=torch.float64)
        bins = torch.arange(WINDOW // 2 + 1, dtype=torch.float64)[:, None]
        turns = 2 * math.pi / WINDOW * bins * torch.arange(WINDOW)
        waves = torch.cat([turns.cos() * window, turns.sin() * window])
        self.register_buffer("waves", waves.float().unsqueeze(1))
        with np.load(package_file("whisper", "assets/mel_filters.npz")) as filters:
            self.register_buffer("mels", torch.from_numpy(filters["mel_80"]))

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        half = WINDOW // 2
        padded = F.pad(sound.unsqueeze(1), (half, half), mode="reflect")
        # One frame more than is wanted lies behind the end.
        waves = F.conv1d(padded[..., :-HOP], self.waves, stride=HOP)
        real, imaginary = waves.chunk(2, 1)
        mels = self.mels @ (real * real + imaginary * imaginary)
        logs = mels.clamp(min=1e-10).log10()
        return (torch.maximum(logs, logs.amax() - 8) + 4) / 4


class Encode(nn.Module):
    def __init__(self, encoder: whisper.Encoder, decoder: whisper.Decoder) -> None:
        super().__init__()
        self.spectrogram = Spectrogram()
        self.encoder = quantize(encoder)
        attentions = [block.cross_attn for block in decoder.blocks]
        self.keys = nn.ModuleList(Linear(each.key) for each in attentions)
        self.values = nn.ModuleList(Linear(each.value) for each in attentions)

    def forward(self, sound: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        states = self.encoder(self.spectrogram(sound))
        return _heads(self.keys, states), _heads(self.values, states)


def _heads(layers: nn.ModuleList, states: torch.Tensor) -> torch.Tensor:
    """Results of all layers [layers, heads, T, HEAD]."""
    parts = torch.cat([layer(states) for layer in layers])
    return parts.unflatten(2, (whisper.HEADS, HEAD)).transpose(1, 2)


class Decode(nn.Module):
    """Token [1, 1], position [1], keys and values; the next token [1, 1]."""

    def __init__(self, decoder: whisper.Decoder) -> None:
        super().__init__()
        self.table = quantized(decoder.token_embedding.weight)
        self.positions = nn.Parameter(decoder.positional_embedding[:CONTEXT].clone())
        self.blocks, self.ln = quantize(decoder.blocks), decoder.ln
        shape = (1, whisper.HEADS, CONTEXT, HEAD)
        for index in range(whisper.LAYERS):
            self.register_buffer(f"keys{index}", torch.zeros(shape))
            self.register_buffer(f"values{index}", torch.zeros(shape))
        triangle = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).tril()
        self.register_buffer("mask", triangle)
        # Tokens that are no text, such as those of times, are never the next.
        barred = torch.zeros(whisper.VOCABULARY)
        barred[whisper.END + 1 :] = -1e9
        self.register_buffer("barred", barred)

    def forward(
        self,
        token: torch.Tensor,
        position: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> torch.Tensor:
        x = F.embedding(token, self.table()) + self.positions[position]
        mask = self.mask[position]
        for index, block in enumerate(self.blocks):
            normal, attention = block.attn_ln(x), block.attn
            cached = getattr(self, f"keys{index}"), getattr(self, f"values{index}")
            cached[0][:, :, position] = _split(attention.key(normal))
            cached[1][:, :, position] = _split(attention.value(normal))
            x = x + _attend(attention, normal, *cached, mask)
            normal, attention = block.cross_attn_ln(x), block.cross_attn
            heard = keys[index : index + 1], values[index : index + 1]
            x = x + _attend(attention, normal, *heard)
            x = x + block.mlp(block.mlp_ln(x))
        logits = F.linear(self.ln(x), self.table()) + self.barred
        return logits.argmax(-1)


def _split(x: torch.Tensor) -> torch.Tensor:
    return x.unflatten(2, (whisper.HEADS, HEAD)).transpose(1, 2)


def _attend(
    attention: nn.Module,
    x: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    query = _split(attention.query(x))
    mixed = F.scaled_dot_product_attention(query, keys, values, mask)
    return attention.out(mixed.transpose(1, 2).flatten(2))


def states_of(samples: int) -> int:
    """How many states the encoder makes of a sound: a step of 10, at least a second
    of silence behind it."""
    wanted = math.ceil((samples + RATE) / SAMPLES / 10) * 10
    return min(max(wanted, LEAST), MOST)


def make(folder: Path) -> Page:
    encoder, decoder = whisper.Encoder().eval(), whisper.Decoder().eval()
    encode, decode = Encode(encoder, decoder), Decode(decoder)
    count = torch.export.Dim("count", min=LEAST, max=MOST)
    example = torch.zeros(1, whisper.STATES * SAMPLES)
    heard = [
        torch.zeros(whisper.LAYERS, whisper.HEADS, whisper.STATES, HEAD)
        for _ in range(2)
    ]
    step = (torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    methods = {
        "encode": (encode, (example,), ({1: SAMPLES * count},)),
        "decode": (decode, (*step, *heard), (None, None, {2: count}, {2: count})),
    }
    (folder / PROGRAM).write_bytes(export(methods))
    _write_tokenizer(folder / "tokenizer.json")
    run = Loaded(folder / PROGRAM)
    sound = write_wav(speech(), folder / "speech.wav")
    states = states_of(len(sound))
    padded = F.pad(sound, (0, states * SAMPLES - len(sound)))
    keys, values = run(padded.unsqueeze(0), method="encode")
    tokens = greedy(run, keys, values)
    text = Tokenizer.from_file(str(folder / "tokenizer.json")).decode(tokens)
    assert text == whisper.text(tokens)
    expected = {
        "speech.wav": {
            "samples": len(sound),
            "states": states,
            "keys_mean": float(keys.abs().mean()),
            "values_mean": float(values.abs().mean()),
            "tokens": tokens,
            "text": text.strip(),
        }
    }
    more = {
        "tokenizer": "tokenizer.json",
        "generation": {
            "context": CONTEXT,
            "first": FIRST,
            "ends": [whisper.END],
            "states": ["decode"],
        },
    }
    return Page(_ports(), expected, more)


def greedy(
    run: Callable[..., list[torch.Tensor]], keys: torch.Tensor, values: torch.Tensor
) -> list[int]:
    """The tokens of what was heard, by `decode` of a program or of whatever is called
    as one."""
    given = list(FIRST)
    for position in range(CONTEXT):
        token = torch.tensor([[given[position]]])
        (best,) = run(token, torch.tensor([position]), keys, values, method="decode")
        if position + 1 < len(FIRST):
            continue
        if int(best) == whisper.END:
            break
        given.append(int(best))
    return given[len(FIRST) :]


def _ports() -> dict[str, Any]:
    count = size("states", LEAST, MOST)
    dims = [whisper.LAYERS, whisper.HEADS, count, HEAD]
    samples = size(f"{SAMPLES} * states", SAMPLES * LEAST, SAMPLES * MOST, SAMPLES)
    sound = {"rate": RATE, "multiple": 10 * SAMPLES, "silence": RATE}
    keys = port("keys", "float32", dims, "of what was heard, for `decode`")
    values = port("values", "float32", dims, "of what was heard, for `decode`")
    return {
        "encode": {
            "inputs": [
                port(
                    "sound",
                    "float32",
                    [1, samples],
                    "samples in -1 to 1, then silence",
                    sound=sound,
                )
            ],
            "outputs": [keys, values],
        },
        "decode": {
            "inputs": [
                port("token", "int64", [1, 1], "the one before"),
                port("position", "int64", [1], "of that token, from 0 on"),
                keys,
                values,
            ],
            "outputs": [port("token", "int64", [1, 1], "the next one")],
        },
    }


def _write_tokenizer(path: Path) -> None:
    """For decoding alone: it has no merges."""
    lines = package_file("whisper", "assets/gpt2.tiktoken").read_bytes().splitlines()
    letters = _letters()
    tokens = [f"<|{index}|>" for index in range(whisper.VOCABULARY)]
    for piece, rank in map(bytes.split, lines):
        tokens[int(rank)] = "".join(letters[b] for b in base64.b64decode(piece))
    kinds = [3 if index >= whisper.END else 1 for index in range(len(tokens))]
    fields = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [],
    }
    file: Any = SimpleNamespace(fields=fields)
    llama.write_tokenizer(file, path)


def _letters() -> list[str]:
    """GPT-2's letter for each byte: its own, if it can be seen, or one above 255."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in seen]
    names = {byte: chr(byte) for byte in seen}
    names |= {byte: chr(256 + index) for index, byte in enumerate(others)}
    return [names[byte] for byte in range(256)]
