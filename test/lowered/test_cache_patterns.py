"""Caches and attention as ExecuTorch's Llama writes them, in PyTorch's own ops."""

from __future__ import annotations

import pytest
import torch
from harness import lower
from torch.nn import functional as F

import executorch_webgpu
from executorch_webgpu.ir import serialize

MAX = 16


class Repeated(torch.nn.Module):
    """A position from data, caches by index_copy, a mask by narrow, equal heads."""

    def __init__(self, interleaved: bool) -> None:
        super().__init__()
        self.interleaved = interleaved
        for name in "kv":
            self.register_buffer(name, torch.zeros(1, 2, MAX, 64))
        self.register_buffer("mask", torch.ones(MAX, MAX, dtype=torch.bool).tril())

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        start: torch.Tensor,
    ) -> torch.Tensor:
        at = start.item()
        torch._check(at >= 0)
        torch._check(at < MAX)
        positions = torch.arange(q.shape[2]) + at
        self.k.index_copy_(2, positions, k)
        self.v.index_copy_(2, positions, v)
        if self.interleaved:
            k, v = (x.repeat_interleave(2, dim=1) for x in (self.k, self.v))
        else:
            k, v = (x.repeat(1, 2, 1, 1) for x in (self.k, self.v))
        mask = self.mask.narrow(0, at, q.shape[2])
        return F.scaled_dot_product_attention(q, k, v, mask)


def make(length: int, position: int) -> tuple[torch.Tensor, ...]:
    heads = [torch.randn(1, count, length, 64) for count in (4, 2, 2)]
    return (*heads, torch.tensor([position]))


@pytest.mark.parametrize("interleaved", [True, False])
def test_repeated_heads(interleaved: bool) -> None:
    """Heads that stand next to their copies are read once; others as they are."""
    program = lower(Repeated(interleaved), make(3, 0))
    ((_, blob),) = program.delegates
    ops = [call.op for call in serialize.read(blob).calls]
    assert ops.count("webgpu.attend_cached") == 1, ops
    assert ops.count("aten.repeat.default") == (0 if interleaved else 2), ops
    assert ops.count("webgpu.cache_put") == 2, ops
    assert "aten.add.Tensor" not in ops, ops
    eager = Repeated(interleaved)
    executorch_webgpu.reset_state()
    plans = []
    for position in (0, 3, 6, MAX - 3):
        arguments = make(3, position)
        with torch.no_grad():
            expected = eager(*arguments)
        torch.testing.assert_close(
            program(*arguments)[0], expected, rtol=1e-4, atol=1e-5
        )
        plans.append(executorch_webgpu.stats().plans)
    assert plans[-1] == plans[1]  # the position changes no plan
    with pytest.raises(RuntimeError):
        program(*make(3, MAX - 2))
    assert f"[0, {MAX}), got {MAX}" in (executorch_webgpu.last_error() or "")
    program(*make(3, 0))
