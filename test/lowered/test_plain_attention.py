"""Attention written out in plain PyTorch: what becomes the op, and what must not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from forms import check_forms
from harness import Program, check_op, compare, lower
from torch import nn

from executorch_webgpu import ir
from executorch_webgpu.ir import serialize
from executorch_webgpu.ir.signatures import Attention, AttentionByToken
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.planner import Planner

_OP, _BY_TOKEN = Attention.NAME, AttentionByToken.NAME
LOW = torch.finfo(torch.float32).min
INF = float("inf")


def graph_of(program: Program) -> ir.Graph:
    return serialize.read(program.delegates[0][1])


def dispatches(program: Program) -> list[str]:
    """The launches on a GPU, by op."""
    plan = Planner(graph_of(program), AOT_CAPS).upper_bound()
    return [step.label for step in plan.dispatches]


def attentions(program: Program) -> list[Attention]:
    return [Attention.of(c) for c in graph_of(program).calls if c.op == _OP]


def operands(batch=2, heads=3, queries=7, keys=9, size=8, wide=None):
    """q, k, v, with another number of keys than of queries."""
    shape = (batch, heads)
    return (
        torch.randn(*shape, queries, size),
        torch.randn(*shape, keys, size),
        torch.randn(*shape, keys, wide or size),
    )


def soft(scores: torch.Tensor) -> torch.Tensor:
    return torch.softmax(scores, -1)


def score(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k.transpose(-2, -1)


# -- what becomes the op -------------------------------------------------------------

SCALED: dict[str, Callable[..., torch.Tensor]] = {
    "none": lambda q, k, v: soft(score(q, k)) @ v,
    "root": lambda q, k, v: soft(score(q, k) / math.sqrt(8)) @ v,
    "tensor": lambda q, k, v: soft(score(q, k) / torch.full([], 8.0).sqrt()) @ v,
    "q": lambda q, k, v: soft(score(q * 0.3, k)) @ v,
    "k": lambda q, k, v: soft(score(q, k / 3)) @ v,
    "k_after": lambda q, k, v: soft(q @ (0.3 * k.mT)) @ v,
    "both": lambda q, k, v: soft(score(q * 0.5, k * 0.5) * 2) @ v,
    "negative": lambda q, k, v: soft(score(q, k) * -0.5) @ v,
    "dtype": lambda q, k, v: torch.softmax(score(q, k), 3, dtype=torch.float32) @ v,
    "dropout": lambda q, k, v: (
        nn.functional.dropout(soft(score(q, k)), 0.1, training=False) @ v
    ),
    "einsum": lambda q, k, v: torch.einsum(
        "bhij,bhjd->bhid", soft(torch.einsum("bhid,bhjd->bhij", q, k) * 0.3), v
    ),
    "keys_as_columns": lambda q, k, v: (
        soft(q @ k.view(2, 9, 3, 8).permute(0, 2, 3, 1)) @ v
    ),
    "one_query": lambda q, k, v: soft(score(q[:1], k)) @ v,
    "three_dimensions": lambda q, k, v: soft(score(q[0], k[0])) @ v[0],
    "two_dimensions": lambda q, k, v: soft(score(q[0, 0], k[0, 0])) @ v[0, 0],
}


def test_a_scale_wherever_it_is():
    # Scores that two of them shared would have to be stored.

    def run(q, k, v):
        return [mixed(q * (i + 1), k, v) for i, mixed in enumerate(SCALED.values())]

    names = dispatches(check_forms(run, *operands()))
    assert names.count(_OP) == len(SCALED)
    assert not any("mm" in name or "matmul" in name for name in names)


def test_a_softmax_written_out_too():
    def run(q, k, v):
        s = score(q, k)
        e = (s - s.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True) @ v

    assert dispatches(check_forms(run, *operands())) == [_OP]


def test_sizes_and_head_counts():
    sizes = (1, 1, 1, 1, 4), (3, 5, 37, 113, 12), (2, 2, 5, 3, 64)

    def run(*x):
        return [SCALED["root"](*x[i : i + 3]) for i in range(0, len(x), 3)]

    program = check_forms(run, *(x for size in sizes for x in operands(*size)))
    assert dispatches(program) == [_OP] * len(sizes)


def test_head_sizes_that_no_kernel_reads_in_fours():
    program = check_forms(SCALED["root"], *operands(size=5, wide=7))
    assert set(dispatches(program)) == {_OP}


MASKED: dict[str, tuple[Callable[..., torch.Tensor], Any]] = {
    "added": (lambda s, m: s + m, torch.randn(7, 9)),
    "added_before": (lambda s, m: m + s, torch.randn(2, 1, 1, 9)),
    "by_head": (lambda s, m: s * 0.5 + m, torch.randn(3, 7, 9)),
    "by_batch": (lambda s, m: s + m, torch.randn(2, 1, 7, 9)),
    "by_key": (lambda s, m: s + m, torch.randn(9)),
    "by_query": (lambda s, m: s + m * 2, torch.randn(1, 7, 1)),
    "in_full": (lambda s, m: s + m, torch.randn(2, 3, 7, 9)),
    "bert": (lambda s, m: s / 3 + (1 - m) * LOW, (torch.rand(2, 1, 1, 9) > 0.3) * 1.0),
    "filled": (lambda s, m: s.masked_fill(m, -INF), torch.rand(2, 1, 7, 9) > 0.7),
    "filled_with_a_number": (
        lambda s, m: s.masked_fill(m, -2.0),
        torch.rand(7, 9) > 0.5,
    ),
    "filled_not": (lambda s, m: s.masked_fill(~m, -1e9), torch.rand(7, 9) > 0.3),
    "equal": (lambda s, m: s.masked_fill(m == 0, -1e4), torch.rand(7, 9).round()),
    "where": (lambda s, m: torch.where(m, s, LOW), torch.rand(1, 1, 7, 9) > 0.3),
    "where_not": (lambda s, m: torch.where(m, -INF, s), torch.rand(3, 1, 9) > 0.7),
}


def test_a_mask_of_any_kind():
    def run(q, k, v, *masks):
        kinds = [masked for masked, _ in MASKED.values()]
        return [
            soft(masked(score(q * (i + 1), k) * 0.1, mask)) @ v
            for i, (masked, mask) in enumerate(zip(kinds, masks))
        ]

    inputs = *operands(), *(mask for _, mask in MASKED.values())
    names = dispatches(check_forms(run, *inputs))
    assert names.count(_OP) == len(MASKED)
    # Besides, only masks that are computed take a launch.
    assert len(names) <= len(MASKED) + 6
    assert not any("matmul" in name or "softmax" in name for name in names)


def test_a_constant_mask_costs_no_launch():
    names = (
        "filled",
        "filled_with_a_number",
        "filled_not",
        "where",
        "where_not",
        "added",
    )

    def run(q, k, v):
        for name in names:
            masked, mask = MASKED[name]
            q = soft(masked(score(q, k), mask)) @ v
        return q

    assert dispatches(check_forms(run, *operands())) == [_OP] * len(names)


def test_a_mask_is_inverted_once_for_all_layers():
    def layers(q, k, v, m):
        for _ in range(3):
            q = soft(score(q, k).masked_fill(m, -INF)) @ v
        return q

    program = check_forms(layers, *operands(), torch.rand(2, 1, 1, 9) > 0.6)
    assert len(dispatches(program)) == 4


@pytest.mark.parametrize("hidden", [-INF, LOW, -1e9], ids=["inf", "min", "-1e9"])
def test_a_query_that_sees_nothing(hidden: float):
    """NaN if scores are infinite, an average if they are not; as a softmax has it."""
    seen = torch.rand(7, 9) > 0.3
    seen[2], seen[5] = False, False

    def run(q, k, v, seen, added):
        return (
            soft(score(q, k).masked_fill(~seen, hidden)) @ v,
            soft(torch.where(seen, score(q * 2, k), hidden)) @ v * 2,
            soft(score(q * 3, k) + added) @ v,
        )

    added = torch.zeros(7, 9).masked_fill(~seen, hidden)
    inputs = (*operands(), seen, added)
    program = check_forms(run, *inputs)
    assert set(dispatches(program)) == {_OP}
    assert all(bool(r.isnan().any()) == (hidden == -INF) for r in program(*inputs))


def test_what_is_hidden_may_be_anything():
    q, k, v = operands()
    k[:, :, 3], k[:, :, 5] = INF, float("nan")
    hides = torch.zeros(9, dtype=torch.bool)
    hides[[3, 5]] = True

    def run(q, k, v, m):
        return soft(score(q, k).masked_fill(m, -INF)) @ v

    program = check_forms(run, q, k, v, hides)
    assert not program(q, k, v, hides)[0].isnan().any()


def test_large_scores():
    q, k, v = operands()
    check_forms(SCALED["root"], q * 1000, k, v)
    check_forms(SCALED["k"], q * 1e-3, k * 1e3, v)


def test_a_result_that_is_the_score_of_another():
    def run(q, k, v, w):
        mixed = soft(score(q, k)) @ v
        folded = torch.bmm(soft(score(q * 2, k)).view(6, 7, 9), v.view(6, 9, 8))
        return soft(mixed) @ w, soft(folded.view(2, 3, 7, 8)) @ w

    program = check_forms(run, *operands(), torch.randn(2, 3, 8, 5))
    assert dispatches(program).count(_OP) == 2


# -- causal --------------------------------------------------------------------------

TRIANGLES: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "zeros_filled": lambda s, n: s.masked_fill(
        torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16)[:, :, :n, :n] == 0, -INF
    ),
    "ones_filled": lambda s, n: s.masked_fill(
        torch.ones(n, n, dtype=torch.bool).triu(1), -INF
    ),
    "where": lambda s, n: torch.where(
        torch.ones(n, n, dtype=torch.bool).tril(), s, -INF
    ),
    "added": lambda s, n: s + torch.full((n, n), -INF).triu(1),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_triangle_is_causal(dynamic: bool):
    def run(q, k, v):
        for masked in TRIANGLES.values():
            q = soft(masked(score(q, k) * 0.3, q.shape[2])) @ v
        return q

    length = torch.export.Dim("length", min=2, max=15)
    cases = [operands(queries=n, keys=n) for n in ((11, 15, 2, 11) if dynamic else [7])]
    program = check_forms(
        run,
        *cases[0],
        dynamic_shapes=({2: length},) * 3 if dynamic else None,
        others=cases[1:],
    )
    assert dispatches(program) == [_OP] * len(TRIANGLES)
    assert all(found.is_causal for found in attentions(program))


NO_TRIANGLES: dict[str, tuple[int, torch.Tensor, float]] = {
    "a_number": (7, torch.ones(7, 7).tril() == 0, -1e9),
    "other_diagonal": (7, torch.ones(7, 7).tril(1) == 0, -INF),
    "upper": (7, torch.ones(7, 7).triu() == 0, -INF),
    "longer_keys": (9, torch.ones(7, 9).tril() == 0, -INF),
    "a_hole": (7, (torch.ones(7, 7).tril() == 0).index_fill(1, torch.tensor(2), 1), -4),
    "by_head": (7, torch.stack([torch.ones(7, 7).tril(i) == 0 for i in range(3)]), -1),
}


def test_what_is_nearly_causal_keeps_its_mask():
    def run(q, k, v):
        for keys, mask, hidden in NO_TRIANGLES.values():
            s = score(q, k[:, :, :keys])
            q = soft(s.masked_fill(mask, hidden)) @ v[:, :, :keys]
        return q

    program = check_forms(run, *operands())
    assert dispatches(program) == [_OP] * len(NO_TRIANGLES)
    assert not any(found.is_causal for found in attentions(program))


# -- what must stay as it is ---------------------------------------------------------


def _twice(q, k, v):
    s = score(q, k)
    return soft(s) @ v, s


def _weights_too(q, k, v):
    w = soft(score(q, k))
    return w @ v, w.mean(1)


TABLE, WIDE = torch.rand(7, 9), torch.rand(2, 1, 7, 9)
OTHERS: dict[str, Callable[..., Any]] = {
    "scores_returned": _twice,
    "weights_returned": _weights_too,
    "over_queries": lambda q, k, v: torch.softmax(score(q, k), -2) @ v,
    "over_heads": lambda q, k, v: torch.softmax(score(q, k), 1) @ v,
    "mask_multiplied": lambda q, k, v: soft(score(q, k) * TABLE) @ v,
    "weights_multiplied": lambda q, k, v: (soft(score(q, k)) * TABLE) @ v,
    "scaled_after_mask": lambda q, k, v: soft((score(q, k) + TABLE) * 2) @ v,
    "mask_with_a_factor": lambda q, k, v: (
        soft(torch.add(score(q, k), TABLE, alpha=2)) @ v
    ),
    "mask_that_widens": lambda q, k, v: soft(score(q[0], k[0]) + WIDE) @ v,
    "values_of_more_batches": lambda q, k, v: soft(score(q[0], k[0])) @ v,
    "values_of_fewer_batches": lambda q, k, v: soft(score(q, k)) @ v[:1],
    "heads_mixed": lambda q, k, v: (
        soft(score(q, k).permute(1, 0, 2, 3)) @ v.permute(1, 0, 2, 3)
    ),
    "weights_transposed": lambda q, k, v: soft(score(q, k)).mT @ q,
    "from_the_right": lambda q, k, v: v.mT @ soft(score(q, k)).mT,
    "two_masks": lambda q, k, v: (
        soft(score(q, k) + q[..., :1] + k[..., 0, None, :1]) @ v
    ),
    "shared_keys": lambda q, k, v: soft(score(q, k[0, 0])) @ v,
}


def test_what_is_something_else_stays():
    def run(q, k, v):
        return [other(q * (i + 1), k, v) for i, other in enumerate(OTHERS.values())]

    assert _OP not in dispatches(check_op(run, *operands()))


def test_halves_are_rounded_between_the_steps():
    program = check_op(SCALED["root"], *(x.half() for x in operands()))
    assert _OP not in dispatches(program)


def test_layers_with_a_softmax_between_stay_layers():
    table, rows = torch.randn(16, 8), torch.randn(16, 8)
    program = check_op(lambda x: soft(x @ table.t()) @ rows, torch.randn(2, 7, 8))
    assert _OP not in dispatches(program)


def test_masks_that_hide_whole_rows_are_not_summed():
    far = torch.zeros(7, 9)
    far[3] = -1e9
    bias = torch.randn(3, 7, 9) * 20

    def run(q, k, v):
        return soft(score(q, k) + bias + far) @ v

    assert _OP not in dispatches(check_op(run, *operands()))
    far[3, 2] = 0
    assert dispatches(check_forms(run, *operands())) == [_OP]


# -- models --------------------------------------------------------------------------


class SelfAttention(nn.Module):
    """Projections, heads and back; `mixed` is what happens between."""

    def __init__(self, mixed: Callable[..., torch.Tensor], width: int = 32) -> None:
        super().__init__()
        self.qkv, self.end = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mixed = mixed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, width = x.shape
        q, k, v = (
            t.view(b, n, 4, width // 4).transpose(1, 2)
            for t in self.qkv(x).split(width, dim=2)
        )
        y = self.mixed(q, k, v).transpose(1, 2).contiguous().view(b, n, width)
        return self.end(y)


class Block(nn.Module):
    def __init__(self, attention: nn.Module, width: int = 32) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = attention
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x))
        return x + self.layers(self.between(x))


class Gpt(nn.Module):
    """GPT-2 as it is written without the op."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 32), nn.Embedding(16, 32)
        self.register_buffer("seen", torch.ones(16, 16).tril().view(1, 1, 16, 16))
        self.blocks = nn.ModuleList(Block(SelfAttention(self.mixed)) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 50, bias=False)

    def mixed(self, q, k, v):
        n = q.size(-2)
        s = score(q, k) * (1.0 / math.sqrt(k.size(-1)))
        return soft(s.masked_fill(self.seen[:, :, :n, :n] == 0, -INF)) @ v

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@pytest.mark.parametrize(
    "dynamic",
    [
        pytest.param(False, id="static", marks=pytest.mark.long),
        pytest.param(True, id="dynamic"),
    ],
)
def test_gpt(dynamic: bool):
    length = torch.export.Dim("length", min=2, max=15)
    cases = [(torch.randint(50, (2, n)),) for n in ((9, 15, 2) if dynamic else (16,))]
    program = check_forms(
        Gpt(),
        *cases[0],
        dynamic_shapes=({1: length},) if dynamic else None,
        others=cases[1:],
        rtol=1e-3,
        atol=1e-4,
    )
    names = dispatches(program)
    assert names.count(_BY_TOKEN) == 2
    # Two norms, four layers and attention in each of two blocks; nothing is copied.
    assert names.count("aten.linear.default") == 2 * 4 + 1
    assert names.count("aten.layer_norm.default") == 2 * 2 + 1
    assert not [name for name in names if "matmul" in name or "softmax" in name]


class Vit(nn.Module):
    """A vision transformer with q, k, v in one tensor and the scale on q."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.end = nn.Linear(32, 96), nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            b, n, width = x.shape
            qkv = self.qkv(x).reshape(b, n, 3, 4, 8).permute(2, 0, 3, 1, 4)
            q, k, v = qkv.unbind(0)
            y = soft(score(q * 8**-0.5, k)) @ v
            return self.end(y.transpose(1, 2).reshape(b, n, width))

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, stride=4)
        self.first = nn.Parameter(torch.randn(1, 1, 32))
        self.blocks = nn.Sequential(*(Block(self.Attention()) for _ in range(2)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1)
        return self.blocks(x)[:, 0]


def test_vit():
    program = check_forms(Vit(), torch.randn(2, 3, 16, 16), rtol=1e-3, atol=1e-4)
    names = dispatches(program)
    assert names.count(_BY_TOKEN) == 2
    assert not [name for name in names if "matmul" in name or "softmax" in name]
    # The scale is a number of the attention's: no launch scales q.
    assert "webgpu.pointwise" not in names
    assert "aten.mul.Tensor" not in names


class Windows(nn.Module):
    """Swin's attention: a bias by relative position, and a mask by window."""

    def __init__(self, shifted: bool) -> None:
        super().__init__()
        self.qkv, self.shifted = nn.Linear(16, 48), shifted
        self.table = nn.Parameter(torch.randn(25, 2))
        self.register_buffer("places", torch.randint(0, 25, (81,)))
        mask = torch.where(torch.rand(4, 9, 9) > 0.5, -100.0, 0.0)
        self.register_buffer("mask", mask * (1 - torch.eye(9)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, width = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, 2, 8).permute(2, 0, 3, 1, 4)
        s = score(qkv[0] * 8**-0.5, qkv[1])
        bias = self.table[self.places].view(9, 9, 2).permute(2, 0, 1).contiguous()
        s = s + bias.unsqueeze(0)
        if self.shifted:
            s = s.view(b // 4, 4, 2, n, n) + self.mask.unsqueeze(1).unsqueeze(0)
            s = s.view(-1, 2, n, n)
        return (soft(s) @ qkv[2]).transpose(1, 2).reshape(b, n, width)


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("batch", [4, 8])
def test_windows(shifted: bool, batch: int):
    program = check_forms(Windows(shifted), torch.randn(batch, 9, 16))
    assert dispatches(program) == ["aten.linear.default", _BY_TOKEN]


def test_heads_folded_into_the_batch():
    def bart(x, y, mask):
        q, k, v = (
            t.view(2, -1, 4, 8).transpose(1, 2).contiguous().view(8, -1, 8)
            for t in (x * 0.3, y, y + 1)
        )
        s = torch.bmm(q, k.transpose(1, 2)).view(2, 4, 5, 7) + mask
        y = torch.bmm(soft(s.view(8, 5, 7)), v).view(2, 4, 5, 8)
        return y.transpose(1, 2).reshape(2, 5, 32)

    mask = torch.zeros(2, 1, 5, 7).masked_fill(torch.rand(2, 1, 5, 7) > 0.7, LOW)
    inputs = torch.randn(2, 5, 32), torch.randn(2, 7, 32), mask
    names = dispatches(check_forms(bart, *inputs))
    assert names[-1] == _BY_TOKEN
    assert len(names) == 3  # with x * 0.3, from which other views follow, and y + 1


def test_repeated_heads_are_read_once():
    def repeat(x):
        b, h, n, d = x.shape
        return x[:, :, None].expand(b, h, 3, n, d).reshape(b, h * 3, n, d)

    def run(q, k, v, m):
        return soft(score(q, repeat(k)) * 0.4 + m) @ repeat(v)

    q, (_, k, v) = operands(heads=6)[0], operands(heads=2)
    program = check_forms(run, q, k, v, torch.randn(2, 1, 7, 9))
    assert dispatches(program) == [_OP]


def test_batch_and_length_of_another_sequence_are_dynamic():
    batch = torch.export.Dim("batch", min=1, max=4)
    length = torch.export.Dim("length", min=1, max=12)

    def run(q, k, v, m):
        return soft(score(q, k) * 0.3 + m) @ v

    cases = [
        (*operands(batch=b, keys=n), torch.randn(b, 1, 1, n))
        for b, n in ((2, 9), (4, 12), (1, 5), (4, 1))
    ]
    shapes = ({0: batch}, *({0: batch, 2: length},) * 2, {0: batch, 3: length})
    program = check_forms(run, *cases[0], dynamic_shapes=shapes, others=cases[1:])
    assert dispatches(program) == [_OP]


def test_keys_are_read_as_they_were_when_scored():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.randn(1, 2, 8, 4))

        def forward(self, q, v, rows, at):
            s = score(q, self.keys)
            self.keys[:, :, at] = rows
            return soft(s) @ v

    model = Model()
    q, v, rows = (
        torch.randn(1, 2, 3, 4),
        torch.randn(1, 2, 8, 4),
        torch.randn(1, 2, 2, 4),
    )
    program = lower(model, (q, v, rows, torch.tensor([1, 2])))
    for step in range(3):
        inputs = q, v, rows * 5 * step, torch.tensor([step, step + 2])
        compare(program(*inputs), [model(*inputs)])


@pytest.mark.parametrize("filled", [False, True])
def test_over_a_cache_it_reads_only_live_keys(filled: bool):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.ones(8, 8, dtype=torch.bool).tril())
            self.register_buffer("added", torch.full((8, 8), -INF).triu(1))
            self.register_buffer("k", torch.zeros(1, 2, 8, 4))
            self.register_buffer("v", torch.zeros(1, 2, 8, 4))

        def forward(self, q, k, v, at):
            self.k[:, :, at], self.v[:, :, at] = k, v
            s = score(q, self.k) * 0.5
            if filled:
                return soft(s.masked_fill(~self.seen[at], -INF)) @ self.v
            return soft(s + self.added[at]) @ self.v

    model = Model()
    inputs = [torch.randn(1, 2, 2, 4) for _ in range(3)]
    program = lower(model, (*inputs, torch.tensor([0, 1])))
    assert "webgpu.attend_cached" in [call.op for call in graph_of(program).calls]
    for step in range(3):
        inputs = [torch.randn(1, 2, 2, 4) for _ in range(3)]
        at = torch.tensor([2 * step, 2 * step + 1])
        compare(program(*inputs, at), [model(*inputs, at)])
