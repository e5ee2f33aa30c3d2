"""Rotary embeddings: the custom ops, and plain PyTorch that is fused into one."""

from __future__ import annotations

from collections.abc import Callable

import executorch.backends.vulkan.custom_ops_lib  # noqa: F401
import pytest
import torch
from harness import check_op, lower

from executorch_webgpu.errors import Unsupported
from executorch_webgpu.ir import serialize
from executorch_webgpu.ir.dtypes import DType
from executorch_webgpu.ops.attention.rotary import apply_rotary_emb, apply_rotary_emb_hf
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.recorder import Recorder

VK = torch.ops.et_vk


def inputs(length: int) -> tuple[torch.Tensor, ...]:
    return (
        torch.randn(2, length, 6, 32),
        torch.randn(2, length, 2, 32),
        torch.randn(length, 16),
        torch.randn(length, 16),
    )


def test_interleaved_pairs() -> None:
    s = torch.export.Dim("s", min=1, max=13)
    check_op(
        lambda q, k, c, n: VK.apply_rotary_emb(q, k, c, n),
        *inputs(7),
        dynamic_shapes=({1: s}, {1: s}, {0: s}, {0: s}),
        others=[inputs(13), inputs(1), inputs(13)],
    )


def test_halves_partial_rotation_and_three_dimensions() -> None:
    def ops(q, k, c, n, x, f):
        return (
            *VK.apply_rotary_emb_hf(q, k, c, n, 5),
            *VK.apply_rotary_emb_hf(q, k, c[:, :24], n[:, :24], 0),
            VK.apply_rotary_emb_interleaved(x, f),
            VK.apply_rotary_emb_interleaved(x, f.reshape(1, 7, 15, 2)),
        )

    check_op(
        ops,
        torch.randn(2, 7, 6, 32),
        torch.randn(2, 7, 2, 32),
        torch.randn(20, 32),
        torch.randn(20, 32),
        torch.randn(2, 7, 30),
        torch.randn(7, 30),
    )


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def check_one_launch(
    model: torch.nn.Module,
    make: Callable[[int], tuple[torch.Tensor, ...]],
    seq: int,
) -> list[str]:
    """Lowers for any length; the calls, of which one is the rotation of both."""
    s = torch.export.Dim("s", min=1, max=13)
    shapes = ({seq: s}, {seq: s}, {0: s}, {0: s})
    program = lower(model, make(7), dynamic_shapes=shapes)
    ((_, blob),) = program.delegates
    calls = [call.op for call in serialize.read(blob).calls]
    assert calls.count("webgpu.rotary") == 1, calls
    for length in (13, 1, 13, 7):
        arguments = make(length)
        for result, wanted in zip(program(*arguments), model(*arguments)):
            torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-5)
    return calls


@pytest.mark.parametrize("seq", [1, 2])
def test_plain_pytorch_becomes_one_launch(seq: int) -> None:
    """Query and key together, with the sequence before or after the heads."""

    class Rotary(torch.nn.Module):
        def forward(self, q, k, cos, sin):
            cos, sin = cos.unsqueeze(3 - seq - 1), sin.unsqueeze(3 - seq - 1)
            return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin

    def make(length: int) -> tuple[torch.Tensor, ...]:
        q, k = torch.randn(2, length, 6, 32), torch.randn(2, length, 2, 32)
        if seq == 2:
            q, k = q.transpose(1, 2).contiguous(), k.transpose(1, 2).contiguous()
        return q, k, torch.randn(length, 32), torch.randn(length, 32)

    check_one_launch(Rotary(), make, seq)


def test_what_only_looks_like_a_rotation_is_left_alone() -> None:
    def almost(x, cos, sin):
        half = x.shape[-1] // 2
        swapped = torch.cat((x[..., half:], x[..., :half]), dim=-1)  # no minus
        shifted = torch.cat((-x[..., half + 1 :], x[..., : half + 1]), dim=-1)
        return (
            x * cos + swapped * sin,
            x * cos + shifted * sin,
            x * sin - rotate_half(x),
        )

    check_op(almost, torch.randn(1, 2, 5, 8), torch.randn(5, 8), torch.randn(5, 8))


def pairs(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.reshape(*x.shape[:-1], -1, 2).unbind(-1)


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Pairs (2i, 2i + 1) of [batch, token, head, column]; angles [token, pair]."""
    r, i = pairs(x)
    cos, sin = cos[:, None], sin[:, None]
    both = (r * cos - i * sin, i * cos + r * sin)
    return torch.stack(both, dim=-1).flatten(3)


def test_pairs_in_plain_pytorch_become_one_launch() -> None:
    class Rotary(torch.nn.Module):
        def forward(self, q, k, cos, sin):
            return turned(q, cos, sin), turned(k, cos, sin)

    def make(length: int) -> tuple[torch.Tensor, ...]:
        q, k = torch.randn(2, length, 6, 32), torch.randn(2, length, 2, 32)
        return q, k, torch.randn(length, 16), torch.randn(length, 16)

    calls = check_one_launch(Rotary(), make, 1)
    assert set(calls) - VIEWS == {"webgpu.rotary"}, calls


VIEWS = {f"aten.{name}_copy.default" for name in ("view", "unsqueeze", "squeeze")}


def turned_apart(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Halves of [batch, head, token, column]; angles [token, half a column]."""
    r, i = x.chunk(2, -1)
    return torch.cat((r * cos - i * sin, i * cos + r * sin), -1)


def test_halves_apart_in_plain_pytorch_become_one_launch() -> None:
    class Rotary(torch.nn.Module):
        def forward(self, q, k, cos, sin):
            return turned_apart(q, cos, sin), turned_apart(k, cos, sin)

    def make(length: int) -> tuple[torch.Tensor, ...]:
        q, k = torch.randn(2, 6, length, 32), torch.randn(2, 2, length, 32)
        return q, k, torch.randn(length, 16), torch.randn(length, 16)

    assert check_one_launch(Rotary(), make, 2) == ["webgpu.rotary"]


def test_what_only_looks_like_turned_halves_is_left_alone() -> None:
    def almost(x, c, s):
        r, i = x.chunk(2, -1)
        results = (
            (r * c + i * s, i * c + r * s),  # no minus
            (i * c - r * s, i * s + r * c),  # the other half first
            (r * c - i * s, i * s + r * c),  # the angles the wrong way round
            (i * c + r * s, r * c - i * s),
            (r * c - i * s, i * c + r * s, r),
        )
        return [torch.cat(parts, dim=-1) for parts in results]

    check_op(almost, torch.randn(1, 2, 5, 8), torch.randn(5, 4), torch.randn(5, 4))


def test_what_only_looks_like_turned_pairs_is_left_alone() -> None:
    def almost(x, cos, sin):
        r, i = pairs(x)
        c, s = cos[:, None], sin[:, None]
        results = (
            (r * c + i * s, i * c + r * s),  # no minus
            (i * c - r * s, i * s + r * c),  # the other column first
            (r * c - i * s, i * s + r * c),  # the angles the wrong way round
            (i * c + r * s, r * c - i * s),
        )
        return [torch.stack(both, dim=-1).flatten(3) for both in results]

    check_op(almost, torch.randn(1, 5, 2, 8), torch.randn(5, 4), torch.randn(5, 4))


def test_angles_that_do_not_fit_are_refused() -> None:
    """Planned alone, because the eager op would not get that far."""
    g = Recorder(AOT_CAPS)
    q, k = (g.temp((1, 5, heads, 8), DType.FLOAT32) for heads in (4, 2))
    outs = [g.output(x.shape, DType.FLOAT32) for x in (q, k)]
    deep = g.temp((12, 1, 8), DType.FLOAT32)
    with pytest.raises(Unsupported, match="angles must have 2 dimensions, got 3"):
        apply_rotary_emb_hf(g, q, k, deep, deep, 0, out=outs)
    wide = g.temp((5, 3, 4), DType.FLOAT32)
    with pytest.raises(Unsupported, match="heads of angles must be 4, got 3"):
        apply_rotary_emb(g, q, q, wide, wide, out=[outs[0], outs[0]])
