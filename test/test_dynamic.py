"""One loaded method, planned at its upper bound, run at MAX, smaller, 1, MAX.

Each case is compared with torch; outputs have the live shape and, after the first
round, no buffer and no bind group is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import executorch.backends.vulkan.custom_ops_lib  # noqa: F401
import pytest
import torch
from executorch.backends.vulkan.patterns.weight_packing_utils import (
    pack_4bit_weight_tensor,
)
from harness import check_op, lower
from torch import nn
from torch.nn import functional as F
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
from torchao.quantization.granularity import PerGroup

import executorch_webgpu

VK = torch.ops.et_vk
MAX, SMALL = 29, 7
WIDTH = 64


class Of(nn.Module):
    """A function with constants of its own."""

    def __init__(self, function: Callable[..., Any], **constants: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in constants.items():
            self.register_buffer(name, value)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def rows(*shape: int) -> Callable[[int], tuple[torch.Tensor, ...]]:
    """Inputs whose -1 is the live size."""
    return lambda n: (torch.randn(*(n if s == -1 else s for s in shape)),)


def norm(weight: bool = True) -> nn.Module:
    module = nn.RMSNorm(WIDTH, 1e-5, elementwise_affine=weight)
    if weight:
        module.weight.data.uniform_(0.5, 1.5)
    return module


def q4() -> nn.Module:
    codes = torch.randint(-8, 8, (37, WIDTH), dtype=torch.int8)
    return Of(
        lambda m, x: VK.linear_q4gsw(x, m.w, m.s, 32, m.b),
        w=pack_4bit_weight_tensor(codes),
        s=torch.rand(2, 37) * 0.1,
        b=torch.randn(37),
    )


def dynamic_8da4w() -> nn.Module:
    module = nn.Sequential(nn.Linear(WIDTH, 24))
    quantize_(module, Int8DynamicActivationIntxWeightConfig(torch.int4, PerGroup(32)))
    return module


def table() -> nn.Module:
    return Of(
        lambda m, ids: VK.embedding_q4gsw(m.w, m.s, 32, ids),
        w=torch.randint(0, 256, (41, 48), dtype=torch.uint8),
        s=torch.rand(41, 3),
    )


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def heads(n: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(1, count, n, 32) for count in (6, 2, 2))


def rotary_inputs(n: int) -> tuple[torch.Tensor, ...]:
    q, k = torch.randn(1, n, 6, 32), torch.randn(1, n, 2, 32)
    return q, k, torch.randn(n, 16), torch.randn(n, 16)


# name: model, inputs for a size, the dynamic dimension of each input
CASES: dict[str, tuple[Callable[[], nn.Module], Any, Sequence[int]]] = {
    "rms_norm": (norm, rows(2, -1, WIDTH), (1,)),
    "rms_norm of rms_norm": (
        lambda: nn.Sequential(norm(), norm(False)),
        rows(-1, WIDTH),
        (0,),
    ),
    "rms_norm + x": (
        lambda: Of(lambda m, x: F.rms_norm(x, (WIDTH,), m.w) + x, w=torch.rand(WIDTH)),
        rows(-1, WIDTH),
        (0,),
    ),
    "rms_norm * x": (
        lambda: Of(lambda m, x: VK.rms_norm(x, m.w, 1e-6) * x, w=torch.rand(WIDTH)),
        rows(-1, WIDTH),
        (0,),
    ),
    "q4 linear": (q4, rows(-1, WIDTH), (0,)),
    "8da4w linear": (dynamic_8da4w, rows(-1, WIDTH), (0,)),
    "sdpa with grouped heads": (
        lambda: Of(lambda m, *x: attention(*x)),
        heads,
        (2, 2, 2),
    ),
    "4-bit embedding": (table, lambda n: (torch.randint(0, 41, (2, n)),), (1,)),
    "rotary embedding": (
        lambda: Of(lambda m, *x: VK.apply_rotary_emb(*x)),
        rotary_inputs,
        (1, 1, 0, 0),
    ),
    "sigmoid": (lambda: Of(lambda m, x: torch.sigmoid(x)), rows(3, -1), (1,)),
    "select": (
        lambda: Of(lambda m, x: (x[:, -1], x[0], x.select(2, 3))),
        rows(2, -1, 5),
        (1,),
    ),
    "conv1d": (lambda: nn.Conv1d(6, 9, 3, padding=1), rows(2, 6, -1), (2,)),
    "permute": (
        lambda: Of(lambda m, x: x.permute(2, 0, 1).contiguous()),
        rows(2, -1, 5),
        (1,),
    ),
    "layer_norm": (lambda: nn.LayerNorm(WIDTH), rows(-1, WIDTH), (0,)),
    "cat": (
        lambda: Of(lambda m, x: (torch.cat((x, x * 2), 1), torch.cat((x, x), 0))),
        rows(2, -1, 5),
        (1,),
    ),
}


def replay(
    model: nn.Module,
    make: Any,
    dims: Sequence[int],
    sizes: Sequence[int],
    rtol: float = 1e-4,
    atol: float = 1e-4,
) -> None:
    size = torch.export.Dim("size", min=1, max=max(sizes))
    example = make(SMALL if max(sizes) == MAX else max(sizes) // 2)
    shapes: Any = [{dim: size} for dim in dims]
    shapes = (tuple(shapes),) if isinstance(model, Of) else tuple(shapes)
    program = lower(model, example, dynamic_shapes=shapes)
    assert program.report.complete, str(program.report)
    assert len(program.delegates) == 1
    buffers, groups, made = [], [], []
    for live in (*sizes, *sizes):
        inputs = make(live)
        results = program(*inputs)
        with torch.no_grad():
            expected = model(*inputs)
        expected = list(expected) if isinstance(expected, tuple) else [expected]
        assert [tuple(r.shape) for r in results] == [tuple(e.shape) for e in expected]
        for result, wanted in zip(results, expected):
            torch.testing.assert_close(
                result, wanted, rtol=rtol, atol=atol, check_stride=False
            )
        stats = executorch_webgpu.stats()
        buffers.append(stats.created_buffers)
        groups.append(stats.created_bind_groups)
        made.append((stats.created_pipelines, stats.plans))
    assert len(set(buffers)) == 1  # made for the maximum, before the first call
    # A smaller size may need a kernel of its own, but known ones stay bound.
    assert len(set(groups[len(sizes) - 1 :])) == 1
    assert len(set(made[len(sizes) :])) == 1  # a known size makes nothing


@pytest.mark.parametrize("name", CASES)
def test_every_size(name: str) -> None:
    build, make, dims = CASES[name]
    replay(build().eval(), make, dims, (MAX, SMALL, 1, MAX))


def test_static_rms_norm() -> None:
    model = norm().eval()
    x = torch.randn(3, WIDTH)
    program = lower(model, (x,))
    assert program.report.complete, str(program.report)
    before = executorch_webgpu.stats()
    for _ in range(2):
        torch.testing.assert_close(program(x)[0], model(x), rtol=1e-4, atol=1e-5)
    after = executorch_webgpu.stats()
    assert after.created_buffers == before.created_buffers
    assert after.created_bind_groups == before.created_bind_groups


def test_gelu_above_the_dispatch_cap() -> None:
    """More workgroups than one grid dimension has, then fewer, then as many."""
    large = 65535 * 64 // 1024 + 2
    replay(
        nn.GELU(),
        lambda n: (torch.linspace(-6, 6, n * 1024).view(n, 1024),),
        (0,),
        (large, 3, 1, large),
        atol=1e-5,
    )


def test_a_size_above_the_maximum_is_an_error() -> None:
    size = torch.export.Dim("size", min=1, max=MAX)
    program = lower(norm().eval(), (torch.randn(SMALL, WIDTH),), ({0: size},))
    with pytest.raises(RuntimeError):
        program(torch.randn(MAX + 1, WIDTH))
    assert program(torch.randn(MAX, WIDTH))[0].shape == (MAX, WIDTH)


def test_the_second_of_at_least_two() -> None:
    """What needs two elements is delegated where there are two, and says so where
    there are not: a size of 1 is refused as eager would, and the next call works."""

    def second(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.topk(2, 0).values, x[1], x[-2]

    size = torch.export.Dim("n", min=2, max=6)
    x = torch.randn(6, 3)
    program = check_op(second, x, dynamic_shapes=[{0: size}], others=[[x[:2]], [x[3:]]])
    with pytest.raises(RuntimeError):
        program.run(x[:1])
    assert "got 2" in (executorch_webgpu.last_error() or "")
    program(x)
