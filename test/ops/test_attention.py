"""Scaled dot-product attention: masks, causality, grouped heads, blocks, forms."""

from __future__ import annotations

import pytest
import torch
from forms import check_all_forms, check_forms
from harness import check_op
from torch.nn.functional import scaled_dot_product_attention as attention

from executorch_webgpu.ir import serialize
from executorch_webgpu.ops.attention import attention as module
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.planner import Planner


def operands(batch=2, heads=6, queries=37, keys=29, size=20, kv_heads=None):
    shapes = [(heads, queries), (kv_heads or heads, keys), (kv_heads or heads, keys)]
    return tuple(torch.randn(batch, h, n, size) for h, n in shapes)


def variants(q, k, v, added, seen, kg, vg):
    return (
        attention(q, k, v),
        attention(q, k, v, is_causal=True),
        attention(q, k, v, attn_mask=added),
        attention(q, k, v, attn_mask=seen),
        attention(q, kg, vg, enable_gqa=True, scale=0.3),
        attention(q[:, :, :1], k, v),
        attention(q[0], k[0], v[0]),
        attention(q[:, :, :0], k, v),
        attention(q, k, v[..., :7]),
    )


@pytest.mark.parametrize("block", [1 << 22, 2000], ids=["whole", "in_blocks"])
def test_masks_and_heads(block: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_BLOCK", block)
    seen = torch.rand(37, 29) > 0.3
    seen[5] = False  # a query that sees nothing gives zeros
    kg, vg = operands(heads=2)[1:]
    inputs = (*operands(), torch.randn(2, 1, 37, 29), seen, kg, vg)
    check_all_forms(variants, *inputs)


def test_views_and_what_follows():
    def run(x, y):
        q, k, v = x.view(2, 36, 3, 4, 32).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(2, 36, 128) + y

    check_all_forms(run, torch.randn(2, 36, 384), torch.randn(2, 36, 128))


BROADCAST = [
    ((2, 3, 4, 5, 8), (3, 1, 5, 7)),
    ((2, 3, 4, 5, 8), (3, 4, 5, 7)),
    ((2, 3, 4, 5, 8), (1, 3, 4, 5, 7)),
    ((2, 3, 4, 5, 8), (2, 1, 1, 5, 7)),
    ((2, 3, 4, 5, 8), (2, 3, 1, 1, 7)),
    ((2, 3, 2, 4, 5, 8), (3, 1, 4, 5, 7)),
    ((2, 3, 2, 4, 5, 8), (2, 1, 2, 1, 5, 1)),
]


def test_masks_broadcast_over_several_batch_dimensions():
    inputs = [
        tensor
        for shape, mask in BROADCAST
        for tensor in (
            torch.randn(shape),
            torch.randn(*shape[1:-2], 7, 8),  # broadcast, too
            torch.randn(mask),
        )
    ]

    def run(*given):
        calls = zip(given[::3], given[1::3], given[2::3])
        return tuple(
            result
            for q, k, mask in calls
            for result in (attention(q, k, k, mask), attention(q, k, k, mask > 0))
        )

    check_all_forms(run, *inputs)


def test_a_mask_over_a_dynamic_batch():
    batch = torch.export.Dim("batch", min=1, max=4)
    mask = torch.randn(3, 1, 5, 5)
    sizes = [torch.randn(n, 3, 4, 5, 8) for n in (4, 1, 2, 4)]
    check_op(
        lambda q, mask: attention(q, q, q, mask),
        *(sizes[0], mask),
        dynamic_shapes=({0: batch}, None),
        others=[(q, mask) for q in sizes[1:]],
    )


def test_masked_by_minus_infinity_and_large_scores():
    q, k, v = operands(1, 2, 7, 8, 16)
    mask = torch.zeros(7, 8)
    mask[2], mask[3, 1:] = float("-inf"), float("-inf")
    check_all_forms(
        lambda q, k, v, m: (attention(q, k, v, m), attention(q * 1000, k, v)),
        q,
        k,
        v,
        mask,
    )


def test_half_and_large_heads():
    q, k, v = (x.half() for x in operands(1, 2, 9, 33, 256))
    check_all_forms(lambda q, k, v: attention(q, k, v), q, k, v)
    check_all_forms(lambda q, k, v: attention(q, k, v), *operands(1, 1, 3, 7, 5))


def test_long_sequences_are_right_against_float64():
    q, k, v = operands(1, 2, 600, 1500, 32)
    program = check_op(lambda q, k, v: attention(q, k, v), q, k, v)
    exact = attention(q.double(), k.double(), v.double()).float()
    torch.testing.assert_close(program(q, k, v)[0], exact, rtol=1e-5, atol=1e-6)


def test_one_query_over_many_keys():
    q, k, v = operands(1, 9, 1, 1024, 64, kv_heads=3)
    check_all_forms(lambda q, k, v: attention(q, k, v, enable_gqa=True), q, k, v)


def test_dynamic_lengths():
    length = torch.export.Dim("length", min=1, max=64)
    sizes = [64, 7, 1, 64]
    first, *rest = [operands(1, 4, n, n, 16) for n in sizes]
    shapes = ({2: length}, {2: length}, {2: length})
    check_op(
        lambda q, k, v: attention(q, k, v, is_causal=True),
        *first,
        dynamic_shapes=shapes,
        others=rest,
    )


def test_inside_a_module():
    model = torch.nn.MultiheadAttention(16, 2, batch_first=True)
    check_op(model, *[torch.randn(2, 5, 16)] * 3)


@pytest.mark.parametrize(("size", "queries"), [(64, 1), (256, 3), (32, 11)])
def test_many_keys_are_shared_out(size: int, queries: int):
    """Few rows and many keys: workgroups take parts of the keys on GPUs."""

    def run(q, k, v, mask):
        return (
            attention(q, k, v, enable_gqa=True),
            attention(q, k, v, attn_mask=mask, enable_gqa=True) * 2 + 1,
        )

    q = torch.randn(2, 6, queries, size)
    k, v = torch.randn(2, 2, 777, size), torch.randn(2, 2, 777, size)
    mask = torch.randn(queries, 777)
    mask[0, 100:] = float("-inf")  # later parts see nothing
    program = check_forms(run, q, k, v, mask)
    plan = Planner(serialize.read(program.delegates[0][1]), AOT_CAPS).upper_bound()
    labels = [plan.pipelines[step.pipeline].label for step in plan.dispatches]
    assert labels == ["attention_flash", "attention_merge"] * 2


def test_attention_beside_an_op_that_is_kept_alone() -> None:
    """Views rely on the strides that torch gives attention's result."""

    def both(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q = x.view(2, 7, 4, 16).transpose(1, 2)
        y = attention(q, q, q, is_causal=True)
        joined = y.transpose(1, 2).contiguous().reshape(2, 7, -1)
        return joined, torch.bucketize(x, torch.tensor([0.0, 1.0]))

    check_op(both, torch.randn(2, 7, 64))
