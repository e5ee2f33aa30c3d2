"""The modules behind the honest programs: each function makes one, with its inputs and
their dynamic shapes. Between them they have every kind of value, argument and state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from .programs import SECRET

Made = tuple[nn.Module, tuple[torch.Tensor, ...], Any]

_quantized = torch.ops.quantized_decomposed


class Function(nn.Module):
    """A function of a module with these parts and buffers, and of tensors."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                self.add_module(name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def canary() -> Made:
    def run(m: Any, x: Any) -> Any:
        m.total.add_(x)
        return m.total + x, x * m.secret, torch.softmax(x @ m.weight, -1)

    module = Function(
        run,
        secret=torch.full((16, 16), SECRET),
        weight=torch.randn(16, 16),
        total=torch.zeros(16, 16),
    )
    return module, (torch.randn(16, 16),), None


def elementwise() -> Made:
    def run(m: Any, x: Any, y: Any) -> Any:
        z = torch.where(x > y, x * 2 + y, torch.sigmoid(y) / (x.abs() + 1))
        return z.clamp(-3, 3) * m.scale, (x + 1).to(torch.int32)

    dims = {0: Dim("rows", min=2, max=64), 1: Dim("columns", min=2, max=33)}
    module = Function(run, scale=torch.tensor(0.5))
    return module, (torch.randn(5, 7), torch.randn(5, 7)), ((dims, dims),)


def conv() -> Made:
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    return layers, (torch.randn(2, 3, 12, 12),), None


def attention() -> Made:
    def run(m: Any, q: Any, k: Any, v: Any, pos: Any) -> Any:
        at = pos[-1].item()
        torch._check(at >= 0)
        torch._check(at < 16)
        torch._check(at + q.size(1) <= 16)
        torch.ops.llama.update_cache(k, m.keys, at)
        torch.ops.llama.update_cache(v, m.values, at)
        return torch.ops.llama.custom_sdpa(q, m.keys, m.values, at, None, 0.0, True)

    caches = {name: torch.zeros(1, 16, 2, 16) for name in ("keys", "values")}
    heads = [torch.randn(1, 3, count, 16) for count in (4, 2, 2)]
    dims = {1: Dim("length", min=1, max=8)}
    inputs = (*heads, torch.tensor([2]))
    return Function(run, **caches), inputs, ((dims, dims, dims, None),)


def quantized() -> Made:
    def run(m: Any, x: Any) -> Any:
        limits = -127, 127, torch.int8
        codes = _quantized.quantize_per_tensor(x, 0.05, 3, *limits)
        x = _quantized.dequantize_per_tensor(codes, 0.05, 3, *limits)
        w = _quantized.dequantize_per_channel(m.weight, m.scale, m.zero, 0, *limits)
        return F.linear(x, w).relu()

    module = Function(
        run,
        weight=torch.randint(-127, 127, (32, 64), dtype=torch.int8),
        scale=torch.rand(32) * 0.01,
        zero=torch.zeros(32, dtype=torch.int64),
    )
    return module, (torch.randn(4, 64),), None


def lookup() -> Made:
    def run(m: Any, at: Any, x: Any) -> Any:
        picked = m.table(at)
        changed = x.scatter(1, at, picked[..., 0])
        return picked.sum(-1) + x.gather(1, at), changed, x[:, at[0]]

    at = torch.tensor([[1, 4, 2], [0, 3, 5]])
    module = Function(run, table=nn.Embedding(11, 8))
    return module, (at, torch.randn(2, 6)), (({1: Dim("count", min=2, max=6)}, None),)


def views() -> Made:
    def run(m: Any, x: Any, y: Any) -> Any:
        z = torch.cat([x.relu(), y * 2, x[:, :3]], 1)
        z = z.unsqueeze(0).expand(2, -1, -1).permute(2, 0, 1)
        strided = torch.as_strided(m.grid, (3, 4), (1, 5), 2) + x[:1, :4]
        return z.flip(0), m.grid.t()[1:] + y[:1, :1], strided, y.reshape(-1)

    dims = {0: Dim("rows", min=2, max=12)}
    inputs = torch.randn(4, 5), torch.randn(4, 6)
    return Function(run, grid=torch.randn(5, 4)), inputs, ((dims, dims),)


def rotary() -> Made:
    def run(m: Any, x: Any) -> Any:
        x = F.rms_norm(x, (32,), m.norm)
        q, k = m.project(x).view(1, -1, 2, 2, 16).transpose(1, 3).unbind(2)
        cos, sin = m.cos[: x.size(1)], m.sin[: x.size(1)]

        def turn(t: Any) -> Any:
            a, b = t.chunk(2, -1)
            return t * cos + torch.cat([-b, a], -1) * sin

        return F.scaled_dot_product_attention(turn(q), turn(k), k, is_causal=True)

    angles = torch.rand(16, 8).repeat(1, 2)
    module = Function(
        run,
        project=nn.Linear(32, 64, bias=False),
        norm=torch.ones(32),
        cos=angles.cos(),
        sin=angles.sin(),
    )
    return module, (torch.randn(1, 5, 32),), (({1: Dim("length", min=2, max=16)},),)


def reductions() -> Made:
    def run(m: Any, x: Any) -> Any:
        values, places = torch.sort(x, 1)
        return (
            torch.softmax(x, 1).cumsum(1),
            (x * 2).mean((0, 1)),
            values,
            places,
            torch.topk(x, 3, 1).indices,
            F.layer_norm(x, (9,)).amax(1),
        )

    dims = {0: Dim("rows", min=2, max=20)}
    return Function(run), (torch.randn(4, 9),), ((dims,),)


def integers() -> Made:
    def run(m: Any, x: Any, count: Any) -> Any:
        ids = torch.arange(x.size(0)) * 3 + count
        m.calls.add_(1)
        return ids // 2, x[1::2] % 5, x.new_full((x.size(0) + 1,), 7), m.calls + count

    dims = {0: Dim("rows", min=4, max=20)}
    module = Function(run, calls=torch.zeros(1, dtype=torch.int64))
    return module, (torch.arange(6) * 5, torch.tensor([4])), ((dims, None),)


def laid_out() -> Made:
    """Filters that a file with plans holds in parts and in words."""

    def run(m: Any, x: Any, codes: Any) -> Any:
        wide = _quantized.dequantize_per_tensor(
            codes, 0.1, 3, -128, 127, torch.int8, out_dtype=None
        )
        filters = _quantized.dequantize_per_tensor(
            m.filters, 0.01, 0, -127, 127, torch.int8, out_dtype=None
        )
        return m.turned(x), F.conv2d(wide, filters, padding=1)

    module = Function(
        run,
        turned=nn.ConvTranspose2d(6, 8, 3, stride=2),
        filters=torch.randint(-127, 128, (16, 12, 3, 3)).to(torch.int8),
    )
    codes = torch.randint(-128, 128, (1, 12, 8, 9)).to(torch.int8)
    return module, (torch.randn(1, 6, 5, 4), codes), None


ALL = (
    canary,
    elementwise,
    conv,
    attention,
    quantized,
    lookup,
    views,
    rotary,
    reductions,
    integers,
)

# Whose constants are those of a program with plans.
LAID_OUT = (laid_out,)

# Those that carry plans, too.
PORTABLE = (elementwise, attention, lookup, rotary, integers)
