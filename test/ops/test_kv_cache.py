"""Caches that live on the GPU: written in place, read as far as they are live."""

from __future__ import annotations

import copy
from dataclasses import replace

import executorch.backends.vulkan.custom_ops_lib  # noqa: F401
import pytest
import torch
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401
from forms import other_adapter
from harness import Program, lower
from torch.nn import functional as F

import executorch_webgpu
from executorch_webgpu.ir import serialize
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.planner import Planner

MAX = 16


def dispatches(program: Program) -> list[str]:
    """The kernels of the largest plan."""
    ((_, blob),) = program.delegates
    plan = Planner(serialize.read(blob), replace(AOT_CAPS, is_cpu=True)).upper_bound()
    return [plan.pipelines[d.pipeline].label for d in plan.dispatches]


def play(program: Program, model: torch.nn.Module, calls) -> None:
    """The same calls to the program and to eager PyTorch, from empty caches, with the
    kernels for this adapter and with those for the other kind."""
    usual, fresh = program.method, copy.deepcopy(model)
    with other_adapter():
        program.method = program._load()
    play_once(program, fresh, calls)
    program.method = usual
    play_once(program, model, calls)


def play_once(program: Program, model: torch.nn.Module, calls) -> None:
    executorch_webgpu.reset_state()
    for arguments in calls:
        with torch.no_grad():
            expected = model(*arguments)
        results = program(*arguments)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for result, wanted in zip(results, expected):
            torch.testing.assert_close(
                result, wanted, rtol=1e-3, atol=1e-3, equal_nan=True
            )


class Custom(torch.nn.Module):
    """llama.update_cache and llama.custom_sdpa, at a position that data gives."""

    def __init__(self, head: int, batch: int, whole: bool = False) -> None:
        super().__init__()
        self.whole = whole
        for name in "kv":
            self.register_buffer(name, torch.zeros(batch, MAX, 2, head))
        self.register_buffer("table", torch.randn(MAX, 8))

    def forward(self, q, k, v, pos):
        at = pos[-1].item()
        torch._check_is_size(at)
        torch._check(at < MAX)
        torch._check(at + q.size(1) <= MAX)
        if self.whole:
            y = torch.ops.llama.sdpa_with_kv_cache(
                q, k, v, self.k, self.v, at, q.size(1), None, 0.0, True
            )
        else:
            torch.ops.llama.update_cache(k, self.k, at)
            torch.ops.llama.update_cache(v, self.v, at)
            y = torch.ops.llama.custom_sdpa(q, self.k, self.v, at, None, 0.0, True)
        return y, self.table.narrow(0, at, q.size(1)) * 2


@pytest.mark.parametrize(("head", "batch", "whole"), [(32, 2, False), (128, 1, True)])
def test_custom_ops(head: int, batch: int, whole: bool) -> None:
    s = torch.export.Dim("s", min=1, max=8)

    def make(length: int, position: int):
        heads = [torch.randn(batch, length, count, head) for count in (6, 2, 2)]
        return (*heads, torch.tensor([position]))

    model = Custom(head, batch, whole)
    program = lower(model, make(3, 2), ({1: s}, {1: s}, {1: s}, None))
    named = ("llama.update_cache.default", "llama.custom_sdpa.default")
    for name in ("llama.sdpa_with_kv_cache.default",) if whole else named:
        assert name in program.report.delegated
    kernels = dispatches(program)
    # Two caches are written and nothing is copied; the host checks the position.
    assert kernels.count("cache_put") == 2, kernels
    assert len(kernels) == 6, kernels
    plain = Custom(head, batch, whole)
    plain.table.copy_(model.table)
    lengths = (5, 1, 1, 8, 1)
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    play(program, plain, [make(*pair) for pair in zip(lengths, starts)])
    plans = executorch_webgpu.stats().plans
    for length, position in ((1, MAX), (5, MAX - 4), (1, -1)):
        with pytest.raises(RuntimeError):
            program(*make(length, position))
        outside = -1 if position < 0 else MAX
        said = f"index must be in [0, {MAX}), got {outside}"
        assert said in (executorch_webgpu.last_error() or "")
    with pytest.raises(RuntimeError):
        program(*make(9, 0))
    assert program(*make(1, 3))[0].shape == (batch, 1, 6, head)
    assert executorch_webgpu.stats().plans == plans


class Masked(torch.nn.Module):
    """The same ops with a mask that is an input: the position places rows only."""

    def __init__(self, batch: int, whole: bool) -> None:
        super().__init__()
        self.whole = whole
        for name in "kv":
            self.register_buffer(name, torch.zeros(batch, MAX, 2, 32))

    def forward(self, q, k, v, pos, mask):
        at = pos[0].item()
        torch._check_is_size(at)
        torch._check(at + q.size(1) <= MAX)
        if self.whole:
            return torch.ops.llama.sdpa_with_kv_cache(
                q, k, v, self.k, self.v, at, q.size(1), mask, 0.0, False
            )
        torch.ops.llama.update_cache(k, self.k, at)
        torch.ops.llama.update_cache(v, self.v, at)
        return torch.ops.llama.custom_sdpa(q, self.k, self.v, at, mask, 0.0, False)


@pytest.mark.parametrize(("batch", "whole"), [(2, False), (1, True)])
def test_an_explicit_mask(batch: int, whole: bool) -> None:
    s = torch.export.Dim("s", min=1, max=8)

    def make(length: int, position: int):
        heads = [torch.randn(batch, length, count, 32) for count in (4, 2, 2)]
        mask = torch.randn(length, MAX)
        mask[torch.rand(length, MAX) > 0.6] = -torch.inf
        mask[-1, 0] = 0.0
        return (*heads, torch.tensor([position]), mask)

    blind = make(3, 10)
    blind[4][1] = -torch.inf
    shapes = ({1: s}, {1: s}, {1: s}, None, {0: s})
    program = lower(Masked(batch, whole), make(3, 0), shapes)
    assert program.report.complete, program.report
    calls = [make(5, 0), make(1, 5), make(8, 6), blind, make(2, 14)]
    play(program, Masked(batch, whole), calls)
    # A token that sees nothing is NaN in ExecuTorch's op too, and only that one is.
    result = program(*blind)[0].isnan()
    assert result[:, 1].all()
    assert result.sum() == result[:, 1].numel()


def test_a_mask_that_does_not_fit_is_refused() -> None:
    class Op(torch.nn.Module):
        def __init__(self, causal: bool) -> None:
            super().__init__()
            self.causal = causal

        def forward(self, q, k, v, mask):
            return torch.ops.llama.custom_sdpa(q, k, v, 0, mask, 0.0, self.causal)

    heads = [torch.randn(1, length, 2, 32) for length in (3, 9, 9)]
    for mask, causal, reason in (
        (torch.zeros(3, 7), False, "attn_mask must be [3, 9]"),
        (torch.zeros(3, 9), True, "attn_mask and is_causal must not both be given"),
    ):
        report = lower(Op(causal), (*heads, mask)).report
        (fallback,) = report.fallbacks
        assert fallback.reason.startswith(reason), report


class Attending(torch.nn.Module):
    """Attention alone: no write to a cache reports a position outside of it."""

    def __init__(self, causal: bool, at: int | None = None) -> None:
        super().__init__()
        self.causal, self.at = causal, at

    def forward(self, q, k, v, pos):
        at = pos[0].item() if self.at is None else self.at
        return torch.ops.llama.custom_sdpa(q, k, v, at, None, 0.0, self.causal)


@pytest.mark.parametrize("causal", [True, False])
def test_a_position_beyond_the_keys_is_an_error(causal: bool) -> None:
    def make(position: int):
        heads = [torch.randn(1, length, 2, 32) for length in (2, MAX, MAX)]
        return (*heads, torch.tensor([position]))

    program = lower(Attending(causal), make(3))
    usual = program.method
    with other_adapter():
        other = program._load()
    for program.method in (usual, other):
        for at, bad in ((MAX - 1, MAX), (100, 101), (-1, -1)):
            with pytest.raises(RuntimeError):
                program(*make(at))
            text = executorch_webgpu.last_error() or ""
            assert "llama.custom_sdpa.default: index must be in [0, 16)" in text
            assert any(f"got {value}" in text for value in (bad, at)), text
        play_once(program, Attending(causal), [make(MAX - 2), make(0)])


def test_a_constant_position_beyond_the_keys_is_refused() -> None:
    heads = [torch.randn(1, length, 2, 32) for length in (2, MAX, MAX)]
    for at in (MAX - 1, -1):
        program = lower(Attending(True, at), (*heads, torch.tensor([0])))
        (fallback,) = program.report.fallbacks
        assert fallback.reason == f"position must be at most 14, got {at}"


def test_rows_by_indices() -> None:
    """Each batch has rows of its own, call after call."""

    class Scattered(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(2, MAX, 2, 8))

        def forward(self, value, indices):
            torch.ops.llama.update_cache_with_indices(value, self.cache, 0, indices)
            return self.cache * 1

    def make(length: int):
        rows = torch.stack([torch.randperm(MAX)[:length] for _ in range(2)])
        return torch.randn(2, length, 2, 8), rows

    s = torch.export.Dim("s", min=1, max=8)
    program = lower(Scattered(), make(3), ({1: s}, {1: s}))
    name = "llama.update_cache_with_indices.default"
    assert name in program.report.delegated
    play(program, Scattered(), [make(length) for length in (8, 1, 3)])
    value, rows = make(1)
    with pytest.raises(RuntimeError):
        program(value, rows + MAX)
    assert str(int(rows[0] + MAX)) in (executorch_webgpu.last_error() or "")


class Plain(torch.nn.Module):
    """A cache by index, masked attention: no op that is not PyTorch's."""

    def __init__(self, dtype: torch.dtype, additive: bool) -> None:
        super().__init__()
        for name in "kv":
            self.register_buffer(name, torch.zeros(1, 2, MAX, 64, dtype=dtype))
        mask = torch.ones(MAX, MAX, dtype=torch.bool).tril()
        if additive:
            mask = torch.zeros(MAX, MAX, dtype=dtype).masked_fill(~mask, float("-inf"))
        self.register_buffer("mask", mask)

    def forward(self, q, k, v, positions):
        self.k[:, :, positions] = k
        self.v[:, :, positions] = v
        mask = self.mask[positions]
        return F.scaled_dot_product_attention(q, self.k, self.v, mask, enable_gqa=True)


@pytest.mark.parametrize(
    ("dtype", "additive"), [(torch.float32, False), (torch.float16, True)]
)
def test_plain_pytorch(dtype: torch.dtype, additive: bool) -> None:
    s = torch.export.Dim("s", min=1, max=8)

    def make(length: int, position: int):
        heads = [torch.randn(1, count, length, 64, dtype=dtype) for count in (4, 2, 2)]
        return (*heads, torch.arange(position, position + length))

    model = Plain(dtype, additive)
    program = lower(model, make(3, 0), ({2: s}, {2: s}, {2: s}, {0: s}))
    kernels = dispatches(program)
    assert sorted(kernels) == [
        "cache_put",
        "cache_put",
        "cached_scores",
        "cached_values",
        "check_positions",
    ], kernels
    calls = [make(5, 0), make(1, 5), make(8, 6), make(1, 14), make(4, 0)]
    play(program, Plain(dtype, additive), calls)
    with pytest.raises(RuntimeError):
        program(*make(2, MAX - 1))
    assert "16" in (executorch_webgpu.last_error() or "")
    program(*make(1, 0))


class Halves(torch.nn.Module):
    """Caches of float16 under float32, by PyTorch's own ops or by llama's."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        shape = (2, MAX, 2, 64) if form == "llama" else (2, 2, MAX, 64)
        for name in "ab":
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float16))
        self.register_buffer("mask", torch.ones(MAX, MAX, dtype=torch.bool).tril())

    def forward(self, q, k, v, positions):
        if self.form == "llama":
            at = positions[0].item()
            torch._check_is_size(at)
            torch._check(at + q.size(1) <= MAX)
            torch.ops.llama.update_cache(k.half(), self.a, at)
            torch.ops.llama.update_cache(v.half(), self.b, at)
            return torch.ops.llama.custom_sdpa(
                q, self.a.float(), self.b.float(), at, None, 0.0, True
            )
        self.a[:, :, positions] = k.half()
        self.b[:, :, positions] = v.half()
        k, v = self.a.float(), self.b.float()
        if self.form == "repeated":
            k, v = (x.repeat_interleave(2, 1) for x in (k, v))
        elif self.form == "repeated first":
            k, v = (x.repeat_interleave(2, 1).float() for x in (self.a, self.b))
        grouped = self.form == "grouped"
        mask = self.mask[positions]
        return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=grouped)


@pytest.mark.parametrize("form", ["llama", "grouped", "repeated", "repeated first"])
def test_a_cache_of_halves_is_read_as_it_is(form: str) -> None:
    s = torch.export.Dim("s", min=1, max=8)
    token = 1 if form == "llama" else 2

    def make(length: int, position: int):
        heads = [torch.randn(2, length, count, 64) for count in (4, 2, 2)]
        if form != "llama":
            heads = [x.transpose(1, 2).contiguous() for x in heads]
        return (*heads, torch.arange(position, position + length))

    shapes = ({token: s}, {token: s}, {token: s}, {0: s})
    program = lower(Halves(form), make(3, 0), shapes)
    assert program.report.complete, program.report
    # The new rows are cast, and nothing else.
    kernels = sorted(dispatches(program))
    casts = kernels.count("elementwise")
    rest = [name for name in kernels if name not in ("elementwise", "check_positions")]
    assert rest == ["cache_put", "cache_put", "cached_scores", "cached_values"], kernels
    assert casts == 2, kernels
    calls = [make(5, 0), make(1, 5), make(8, 6), make(1, 14)]
    play(program, Halves(form), calls)


def test_a_state_that_is_read_again_is_copied_first() -> None:
    """Old and new content in one call, and states that take each other's place."""

    class Both(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.zeros(4, 3))
            self.register_buffer("b", torch.ones(4, 3))

        def forward(self, x, at):
            old = self.a.clone()
            self.a[at] = x
            first = self.a - old
            keep = self.b.clone()
            self.b.copy_(self.a)
            self.a.copy_(keep)
            return first, old, self.a * 1, self.b * 1

    model, plain = Both(), Both()
    at = torch.tensor([1, 3])
    program = lower(model, (torch.randn(2, 3), at))
    calls = [
        (torch.randn(2, 3), torch.tensor(pair)) for pair in ([0, 1], [2, 3], [1, 2])
    ]
    play(program, plain, calls)


class Heads(torch.nn.Module):
    """Caches for several sizes of heads in one program."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.sizes = sizes
        for size in sizes:
            for name in "kv":
                self.register_buffer(f"{name}{size}", torch.zeros(1, MAX, 2, size))

    def forward(self, x, pos):
        at = pos[0].item()
        torch._check_is_size(at)
        torch._check(at + x.size(1) <= MAX)
        made = []
        for size in self.sizes:
            q, k, v = x[..., :size], x[:, :, :2, :size] * 2, x[:, :, 2:, :size] * 3
            keys, values = getattr(self, f"k{size}"), getattr(self, f"v{size}")
            torch.ops.llama.update_cache(k, keys, at)
            torch.ops.llama.update_cache(v, values, at)
            made.append(
                torch.ops.llama.custom_sdpa(
                    q.contiguous(), keys, values, at, None, 0.0, True
                )
            )
        return tuple(made)


# Each size is a kernel of its own, which software drivers compile for seconds.
@pytest.mark.parametrize(
    "sizes",
    [(48, 80, 256), pytest.param((32, 64, 96, 128, 160, 192), marks=pytest.mark.long)],
)
def test_head_sizes(sizes: tuple[int, ...]) -> None:
    def make(position: int):
        return torch.randn(1, 3, 4, 256), torch.tensor([position])

    program = lower(Heads(*sizes), make(0))
    assert program.report.complete, program.report
    play(program, Heads(*sizes), [make(0), make(3), make(13)])


class TwoPositions(torch.nn.Module):
    """Two caches, each written and read at a position of its own."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("one", "two"):
            self.register_buffer(name, torch.zeros(1, MAX, 2, 32))
        generator = torch.Generator().manual_seed(0)
        for name in ("cos", "sin"):
            table = torch.randn(MAX, 32, generator=generator)
            self.register_buffer(name, table)

    def forward(self, q, k, positions):
        made = []
        for i, cache in enumerate((self.one, self.two)):
            at = positions[i].item()
            torch._check_is_size(at)
            torch._check(at + 3 <= MAX)
            turned = torch.ops.et_vk.apply_rotary_emb_hf(q, k, self.cos, self.sin, at)
            torch.ops.llama.update_cache(turned[1], cache, at)
            made.append(
                torch.ops.llama.custom_sdpa(
                    turned[0], cache, cache, at, None, 0.0, True
                )
            )
        return tuple(made)


def test_two_positions_in_one_graph_are_not_mixed_up() -> None:
    def make(first: int, second: int):
        q, k = torch.randn(1, 3, 4, 32), torch.randn(1, 3, 2, 32)
        return q, k, torch.tensor([first, second])

    program = lower(TwoPositions(), make(0, 5))
    assert program.report.complete, program.report
    calls = [make(0, 5), make(3, 0), make(13, 8), make(1, 13)]
    play(program, TwoPositions(), calls)


def test_a_mask_that_is_no_triangle_is_applied() -> None:
    class Window(Plain):
        def __init__(self) -> None:
            super().__init__(torch.float32, False)
            near = torch.ones(MAX, MAX, dtype=torch.bool).tril().triu(-2)
            self.mask.copy_(near)

    def make(length: int, position: int):
        heads = [torch.randn(1, count, length, 64) for count in (4, 2, 2)]
        return (*heads, torch.arange(position, position + length))

    program = lower(Window(), make(3, 0))
    play(program, Window(), [make(3, 0), make(3, 3), make(3, 6)])
