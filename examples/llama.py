"""A Llama in plain PyTorch, with key and value caches, from a GGUF file.

Nothing here knows WebGPU: weights are torchao-style integer codes with scales,
caches are buffers written by index, attention is PyTorch's own. The names of the
metadata methods are what ExecuTorch's TextLLMRunner asks for.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchao.quantization  # noqa: F401  (defines torch.ops.torchao)
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Config:
    layers: int
    width: int
    hidden: int
    heads: int
    key_heads: int
    vocab: int
    theta: float
    eps: float
    context: int  # tokens that the caches hold

    @property
    def head(self) -> int:
        return self.width // self.heads


class QuantizedWeight(nn.Module):
    """Codes with a scale, and perhaps a zero point, for every group of a row."""

    def __init__(
        self,
        codes: torch.Tensor,
        scale: torch.Tensor,
        zero: torch.Tensor | None,
        limits: tuple[int, int],
    ) -> None:
        super().__init__()
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.register_buffer("zero", zero)
        self.group = codes.shape[1] // scale.shape[1]
        self.limits = limits

    def forward(self) -> torch.Tensor:
        return torch.ops.torchao.dequantize_affine(
            self.codes, [1, self.group], self.scale, self.zero, torch.int8, *self.limits
        )


class Weight(nn.Module):
    """A plain weight behind the same interface."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self) -> torch.Tensor:
        return self.weight


class Linear(nn.Module):
    def __init__(self, weight: nn.Module) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight())


def stacked(parts: list[nn.Module]) -> nn.Module:
    """Weights with the same input as one, row below row."""
    first = parts[0]
    if isinstance(first, Weight):
        return Weight(torch.cat([part() for part in parts]))
    assert isinstance(first, QuantizedWeight)
    codes, scale, zero = (
        None
        if getattr(first, name) is None
        else torch.cat([getattr(part, name) for part in parts])
        for name in ("codes", "scale", "zero")
    )
    return QuantizedWeight(codes, scale, zero, first.limits)


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


class Attention(nn.Module):
    def __init__(self, config: Config, weights: dict[str, nn.Module]) -> None:
        super().__init__()
        self.config = config
        parts = [weights[name] for name in ("attn_q", "attn_k", "attn_v")]
        self.qkv, self.o = Linear(stacked(parts)), Linear(weights["attn_output"])
        shape = (1, config.key_heads, config.context, config.head)
        self.register_buffer("k_cache", torch.zeros(shape))
        self.register_buffer("v_cache", torch.zeros(shape))

    def forward(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor,
    ) -> torch.Tensor:
        heads, keys = self.config.heads, self.config.key_heads
        qkv = self.qkv(x).view(1, -1, heads + 2 * keys, self.config.head)
        qk, v = qkv.transpose(1, 2).split((heads + keys, keys), dim=1)
        qk = qk * cos + rotate_half(qk) * sin
        q, k = qk.split((heads, keys), dim=1)
        self.k_cache[:, :, positions] = k
        self.v_cache[:, :, positions] = v
        y = F.scaled_dot_product_attention(
            q, self.k_cache, self.v_cache, mask, enable_gqa=True
        )
        return self.o(y.transpose(1, 2).reshape(1, -1, self.config.width))


class Block(nn.Module):
    def __init__(self, config: Config, weights: dict[str, nn.Module]) -> None:
        super().__init__()
        self.attention = Attention(config, weights)
        self.norm1 = nn.RMSNorm(config.width, config.eps)
        self.norm2 = nn.RMSNorm(config.width, config.eps)
        for norm, name in ((self.norm1, "attn_norm"), (self.norm2, "ffn_norm")):
            norm.weight = nn.Parameter(weights[name](), requires_grad=False)
        self.gate, self.up = Linear(weights["ffn_gate"]), Linear(weights["ffn_up"])
        self.down = Linear(weights["ffn_down"])

    def forward(self, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), *rest)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Tokens [1, S] at positions [S] to the logits of the next token [1, 1, V]."""

    def __init__(self, config: Config, weights: dict[str, nn.Module]) -> None:
        super().__init__()
        self.config = config
        self.table = weights["token_embd"]
        # One name for a tied weight, or the program would store it twice.
        self.output = weights.get("output")
        self.blocks = nn.ModuleList(
            Block(config, _layer(weights, index)) for index in range(config.layers)
        )
        self.norm = nn.RMSNorm(config.width, config.eps)
        self.norm.weight = nn.Parameter(weights["output_norm"](), requires_grad=False)
        angles = torch.arange(0, config.head, 2).double() / config.head
        turns = torch.outer(
            torch.arange(config.context).double(), config.theta**-angles
        )
        self.register_buffer("cos", torch.cat((turns, turns), -1).cos().float())
        self.register_buffer("sin", torch.cat((turns, turns), -1).sin().float())
        triangle = torch.ones(config.context, config.context, dtype=torch.bool).tril()
        self.register_buffer("mask", triangle)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = F.embedding(tokens, self.table())
        output = self.table if self.output is None else self.output
        cos, sin, mask = self.cos[positions], self.sin[positions], self.mask[positions]
        for block in self.blocks:
            x = block(x, cos, sin, positions, mask)
        return F.linear(self.norm(x[:, -1:]), output())

    def dequantized(self) -> Llama:
        """The same model with every weight as floats, for eager speed."""
        weights: dict[int, nn.Module] = {}

        def plain(module: nn.Module) -> None:
            for name, child in module.named_children():
                if isinstance(child, QuantizedWeight):
                    weights.setdefault(id(child), Weight(child()))
                    setattr(module, name, weights[id(child)])
                else:
                    plain(child)

        plain(self)
        return self

    def metadata(self, prompt: int, eos: list[int], bos: int) -> dict[str, Any]:
        """Constant methods of the exported program, as the runner names them."""
        return {
            "get_max_seq_len": prompt,
            "get_max_context_len": self.config.context,
            "get_vocab_size": self.config.vocab,
            "use_kv_cache": True,
            "use_sdpa_with_kv_cache": False,
            "enable_dynamic_shape": True,
            "get_bos_id": bos,
            "get_eos_ids": eos,
            "get_n_layers": self.config.layers,
        }


def _layer(weights: dict[str, nn.Module], index: int) -> dict[str, nn.Module]:
    prefix = f"blk.{index}."
    return {
        name.removeprefix(prefix): weight
        for name, weight in weights.items()
        if name.startswith(prefix)
    }


# -- GGUF -----------------------------------------------------------------------

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_F32, _Q4_1, _Q8_0 = 0, 3, 8
_BLOCK = 32


class Gguf:
    """The metadata and tensors of a GGUF file."""

    def __init__(self, path: str | Path) -> None:
        self.data = np.memmap(path, np.uint8, "r")
        self.at = 0
        magic, version, tensors, fields = self._read("<4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(
                f"{path} must be GGUF version 2 or 3, got {magic!r} {version}"
            )
        self.fields = {
            self._text(): self._value(self._read("<I")[0]) for _ in range(fields)
        }
        self.tensors: dict[str, tuple[int, tuple[int, ...], int]] = {}
        for _ in range(tensors):
            name, (rank,) = self._text(), self._read("<I")
            shape = self._read(f"<{rank}Q")[::-1]
            kind, offset = self._read("<IQ")
            self.tensors[name] = (kind, shape, offset)
        align = self.fields.get("general.alignment", 32)
        self.start = -(-self.at // align) * align

    def _read(self, form: str) -> tuple[Any, ...]:
        size = struct.calcsize(form)
        self.at += size
        return struct.unpack(form, self.data[self.at - size : self.at].tobytes())

    def _text(self) -> str:
        (size,) = self._read("<Q")
        self.at += size
        return self.data[self.at - size : self.at].tobytes().decode()

    def _value(self, kind: int) -> Any:
        if kind == 8:
            return self._text()
        if kind == 9:
            inner, count = self._read("<IQ")
            return [self._value(inner) for _ in range(count)]
        return self._read(f"<{_SCALARS[kind]}")[0]

    def weight(self, name: str) -> nn.Module:
        kind, shape, offset = self.tensors[name]
        first = self.start + offset
        if kind == _F32:
            raw = self.data[first : first + 4 * int(np.prod(shape))]
            return Weight(torch.from_numpy(raw.view(np.float32).reshape(shape).copy()))
        rows, blocks = shape[0], shape[1] // _BLOCK
        size = {_Q4_1: 20, _Q8_0: 34}.get(kind)
        if size is None:
            raise ValueError(f"{name} must be F32, Q4_1 or Q8_0, got type {kind}")
        raw = self.data[first : first + rows * blocks * size].reshape(
            rows, blocks, size
        )
        scale = raw[..., :2].copy().view(np.float16)[..., 0]
        if kind == _Q8_0:
            codes = raw[..., 2:].copy().view(np.int8)
            return _quantized(codes, scale, None, (-128, 127))
        least = raw[..., 2:4].copy().view(np.float16)[..., 0].astype(np.float32)
        nibbles = np.concatenate([raw[..., 4:] & 15, raw[..., 4:] >> 4], axis=-1)
        codes = nibbles.astype(np.int8) - np.int8(8)
        # weight = nibble * scale + least = (code - zero) * scale
        flat = scale == 0
        codes[flat] = 0
        wide = np.where(flat, 1.0, scale).astype(np.float32)
        zero = np.where(flat, -1.0, -8.0 - least / wide)
        scale = np.where(flat, least, scale).astype(np.float16)
        return _quantized(codes, scale, zero.astype(np.float32), (-8, 7))


def _quantized(
    codes: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray | None,
    limits: tuple[int, int],
) -> QuantizedWeight:
    return QuantizedWeight(
        torch.from_numpy(codes.reshape(codes.shape[0], -1)),
        torch.from_numpy(scale),
        None if zero is None else torch.from_numpy(zero),
        limits,
    )


def halves(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of a head ordered for pairs (2i, 2i + 1); ours are (i, i + half)."""
    pairs = x.view(heads, x.shape[0] // heads // 2, 2, x.shape[1])
    return pairs.transpose(1, 2).reshape(x.shape).contiguous()


def _halved(weight: nn.Module, heads: int) -> nn.Module:
    if isinstance(weight, Weight):
        return Weight(halves(weight(), heads))
    assert isinstance(weight, QuantizedWeight)
    zero = None if weight.zero is None else halves(weight.zero, heads)
    codes, scale = halves(weight.codes, heads), halves(weight.scale, heads)
    return QuantizedWeight(codes, scale, zero, weight.limits)


def load(path: str | Path, context: int) -> tuple[Llama, Gguf]:
    """The model of a GGUF file, with caches for `context` tokens."""
    file = Gguf(path)
    get = {name.removeprefix("llama."): value for name, value in file.fields.items()}
    config = Config(
        layers=get["block_count"],
        width=get["embedding_length"],
        hidden=get["feed_forward_length"],
        heads=get["attention.head_count"],
        key_heads=get["attention.head_count_kv"],
        vocab=get["vocab_size"],
        theta=get["rope.freq_base"],
        eps=get["attention.layer_norm_rms_epsilon"],
        context=min(context, get["context_length"]),
    )
    weights = {}
    for name in file.tensors:
        weight = file.weight(name)
        if ".attn_q." in name:
            weight = _halved(weight, config.heads)
        elif ".attn_k." in name:
            weight = _halved(weight, config.key_heads)
        weights[name.removesuffix(".weight")] = weight
    return Llama(config, weights).eval(), file


def write_tokenizer(file: Gguf, path: str | Path) -> None:
    """The file's byte-pair tokenizer as a Hugging Face `tokenizer.json`."""
    fields = file.fields
    tokens = fields["tokenizer.ggml.tokens"]
    kinds = fields["tokenizer.ggml.token_type"]
    special = [
        {
            "id": index,
            "content": token,
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for index, (token, kind) in enumerate(zip(tokens, kinds))
        if kind == 3
    ]
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    digits = {"type": "Digits", "individual_digits": True}
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, level]},
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": fields["tokenizer.ggml.merges"],
        },
    }
    Path(path).write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
