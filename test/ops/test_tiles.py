"""Every tile of every kernel for GPUs: right at odd sizes, for every layout.

A table of tiles is cut down to one, so that it is what the ops choose.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gpu_plans import check, wanted
from harness import lower
from test_tint import Builder, Constant, filled, half, real, weight, whole
from torch import nn
from torch.nn import functional as F

from executorch_webgpu import ir
from executorch_webgpu.ir import serialize
from executorch_webgpu.ops.attention import attention_split
from executorch_webgpu.ops.conv import convolution
from executorch_webgpu.ops.matmul import gpu_tiles, matmul, matmul_vector
from executorch_webgpu.ops.quantized import packed_linear
from executorch_webgpu.plan.caps import AOT_CAPS, Caps
from executorch_webgpu.plan.planner import Planner


class Products(nn.Module):
    """Operands plain, transposed, sliced and batched, with what follows a sum; of
    floats and of integers. Sizes are no part of a kernel's text, so there are few to
    compile."""

    def forward(self, x, y, z, u, v, i, j):
        return (
            x @ y,  # 65 x 17 x 129
            x[:, :1] @ y[:1],
            x[:, 1:] @ y[1:],  # whole slices, but no vec4
            x[:1] @ y,
            x[:3] @ y[:, :1],
            F.gelu(torch.addmm(x[0, :1], y.t(), x.t(), beta=0.5, alpha=2.0)),
            z @ z.transpose(1, 2),  # 3 of 17 x 64 x 17
            z[:, ::2, 1:] @ z[:, :9, 1:].transpose(1, 2),
            u @ v,  # 68 x 64 x 132, all loads and stores of four
            u[:, :20] @ v[:20],
            i @ j,
        )

    def inputs(self) -> tuple[torch.Tensor, ...]:
        single = [(65, 17), (17, 129), (3, 17, 64), (68, 64), (64, 132)]
        integers = [(17, 65), (65, 3)]
        return (
            *(torch.zeros(shape) for shape in single),
            *(torch.zeros(shape, dtype=torch.int32) for shape in integers),
        )


class HalfProduct(nn.Module):
    """17 x 132 x 65. Programs with halves stand apart: few drivers have f16."""

    def forward(self, h, w, b):
        return F.relu(F.linear(h, w, b))

    def inputs(self) -> tuple[torch.Tensor, ...]:
        return zeros_of_halves((17, 132), (65, 132), (65,))


class FewRows(nn.Module):
    """Three rows, and B loaded along k and across it."""

    def forward(self, x, w, b, v):
        return F.linear(x[:3], w, b), x[:3] @ v

    def inputs(self) -> tuple[torch.Tensor, ...]:
        shapes = [(13, 276), (37, 276), (37,), (276, 40)]
        return tuple(torch.zeros(shape) for shape in shapes)


class LayoutsOfFewRows(FewRows):
    """1 to 16 rows; single elements where operands are not aligned; A transposed,
    sliced and batched."""

    def forward(self, x, w, b, v, z):
        return (
            F.linear(x, w, b),  # 13 x 276 x 37
            F.gelu(F.linear(x[:1, 1:], w[:, 1:])),
            v.t()[:2] @ w.t(),
            x[:5] @ v,
            x[:1] @ v[:, :37],
            z @ z.transpose(1, 2)[:, :, :2],  # 2 of 3 x 36 x 2
            z @ z.reshape(2, 36, 3)[:, :, :1],
        )

    def inputs(self) -> tuple[torch.Tensor, ...]:
        return (*super().inputs(), torch.zeros(2, 3, 36))


class FewRowsOfHalves(nn.Module):
    """2 x 40 x 37, and B across k."""

    def forward(self, h, u):
        return F.relu(F.linear(h, u)), h @ u.t()[:, :36].contiguous()

    def inputs(self) -> tuple[torch.Tensor, ...]:
        return zeros_of_halves((2, 40), (37, 40))


class Convolutions(nn.Module):
    """65 and 9 filters; padded; three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.many = nn.Conv2d(16, 65, 3, padding=1)
        self.volume = nn.Conv3d(3, 9, 2)

    def forward(self, x, v):
        return self.many(x), self.volume(v)

    def inputs(self) -> tuple[torch.Tensor, ...]:
        return torch.zeros(3, 16, 9, 11), torch.zeros(1, 3, 5, 4, 7)


class HalfConvolution(nn.Module):
    """2 x 11 filters, in groups, strided and dilated."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Conv2d(34, 22, (3, 2), groups=2, dilation=2, stride=2).half()

    def forward(self, h):
        return F.gelu(self.parts(h))

    def inputs(self) -> tuple[torch.Tensor, ...]:
        return zeros_of_halves((3, 34, 9, 11))


class Halves(nn.Module):
    """Products and a convolution of halves: B across k and along it, vec4 and single
    elements, whole slices and not."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(16, 65, 3, padding=1).half()

    def forward(self, x, y, w, p):
        return (
            x @ y,  # 65 x 64 x 132
            x[:, 1:18] @ y[1:18, 1:],
            F.linear(x, w),  # 65 x 64 x 37
            F.linear(x[:, 1:], w[:, 1:]),
            self.conv(p),
        )

    def inputs(self) -> tuple[torch.Tensor, ...]:
        return zeros_of_halves((65, 64), (64, 132), (37, 64), (3, 16, 9, 11))


def zeros_of_halves(*shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.zeros(shape, dtype=torch.float16) for shape in shapes)


@functools.cache
def lowered(kind: type[Any]) -> ir.Graph:
    module = kind()
    program = lower(module, module.inputs())
    ((_, blob),) = program.delegates
    return serialize.read(blob)


# Made once: what is wanted of a graph is kept by what makes it.
PRODUCTS = functools.partial(lowered, Products)
HALF_PRODUCT = functools.partial(lowered, HalfProduct)
FEW_ROWS = functools.partial(lowered, FewRows)
FEW_ROWS_OF_HALVES = functools.partial(lowered, FewRowsOfHalves)
LAYOUTS = functools.partial(lowered, LayoutsOfFewRows)
CONVOLUTIONS = functools.partial(lowered, Convolutions)
HALF_CONVOLUTION = functools.partial(lowered, HalfConvolution)
HALVES = functools.partial(lowered, Halves)


def packed(rows: int, group: int, form: Callable[[Any], Any]) -> ir.Graph:
    """A linear layer of 4-bit weights, 17 groups deep, with 37 outputs."""
    depth = 17 * group
    codes = Constant(whole(37, depth // 2, dtype=torch.uint8))
    args = [real(rows, depth), codes, weight(17, 37), group, weight(37)]
    args.append([real(rows, 37)])
    return Builder("et_vk.linear_q4gsw.default", form(args)).graph


# A tile's kernel differs from another's in constants, and in how often the same lines
# are repeated: one of each width of a load and of a sum decides for the others.
def tiles(*quick: str) -> list[Any]:
    """All tiles; only those named here are no long tests."""
    return [
        pytest.param(tile, id=name, marks=[] if name in quick else pytest.mark.long)
        for name, tile in gpu_tiles.BY_NAME.items()
    ]


TILES = tiles("tiled 64x64x16/4x4", "tiled 32x32x32/4x4/4")


@pytest.mark.parametrize("tile", TILES)
def test_products(tile: gpu_tiles.Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = PRODUCTS, HALF_PRODUCT
    for graph in graphs:
        wanted(graph)
    monkeypatch.setattr(gpu_tiles, "TILES", (tile,))
    monkeypatch.setattr(matmul, "FEW", 0)
    for graph in graphs:
        check(graph, ["matmul_tiled"])


@pytest.mark.parametrize("tile", TILES)
def test_convolutions(tile: gpu_tiles.Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = CONVOLUTIONS, HALF_CONVOLUTION
    for graph in graphs:
        wanted(graph)
    monkeypatch.setattr(gpu_tiles, "TILES", (tile,))
    monkeypatch.setattr(convolution, "fits_strip", lambda conv: False)
    for graph in graphs:
        check(graph, ["conv_tiled"])


@pytest.mark.parametrize("tile", tiles("tiled 64x64x16/4x4"))
def test_sums_in_f16(tile: gpu_tiles.Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted(HALVES)
    monkeypatch.setattr(gpu_tiles, "TILES", (tile,))
    monkeypatch.setattr(convolution, "fits_strip", lambda conv: False)
    check(HALVES, ["matmul_tiled", "conv_tiled"], f16_accumulate=True)


@functools.cache
def halves() -> ir.Graph:
    args = filled("aten.mm.default", half([real(20, 48), real(48, 20)]))
    return Builder("aten.mm.default", args).graph


def test_large_halves_are_summed_in_f32_by_default() -> None:
    """Products beyond 65504, f16's largest number, cancel each other."""

    def large(inputs: list[np.ndarray]) -> None:
        for x in inputs:
            x[...] = 300.0
        inputs[0].reshape(20, 48)[:, 24:] = -300.0

    check(halves, ["matmul_tiled"], change=large)
    with pytest.raises(AssertionError):
        check(halves, ["matmul_tiled"], change=large, f16_accumulate=True)


def test_what_f16_sums_gain_is_measured_apart() -> None:
    plans = [
        Planner(halves(), replace(AOT_CAPS, f16_accumulate=is_f16)).upper_bound()
        for is_f16 in (False, True)
    ]
    (plain,), (other,) = (plan.choices for plan in plans)
    assert other.key == f"{plain.key}, sums in f16"
    assert plans[0].pipelines != plans[1].pipelines


def check_vector(
    graph: Callable[[], ir.Graph], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted(graph)
    one = {name: matmul_vector.VECTORS[name]}
    monkeypatch.setattr(matmul_vector, "VECTORS", one)
    check(graph, ["matmul_vector"])


@pytest.mark.parametrize("name", matmul_vector.VECTORS)
def test_few_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_vector(FEW_ROWS, name, monkeypatch)


@pytest.mark.parametrize("graph", [LAYOUTS, FEW_ROWS_OF_HALVES], ids=["f32", "f16"])
def test_layouts_of_few_rows(
    graph: Callable[[], ir.Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_vector(graph, "vector 64/16", monkeypatch)


def test_few_rows_do_not_spread_infinities(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last k are loaded again where others have more: infinite, they must not be
    multiplied with zeros."""

    def last(inputs: list[np.ndarray]) -> None:
        for x in inputs[0], inputs[1], inputs[3]:
            x.reshape(-1)[[275, -1]] = np.inf

    one = {"vector 256/64": matmul_vector.VECTORS["vector 256/64"]}
    monkeypatch.setattr(matmul_vector, "VECTORS", one)
    check(FEW_ROWS, ["matmul_vector"], change=last)


PACKED = {
    "1 row, groups of 32": functools.partial(packed, 1, 32, list),
    "9 rows, halves": functools.partial(packed, 9, 32, half),
    # Not a multiple of four: loads are guarded.
    "3 rows, groups of 6": functools.partial(packed, 3, 6, list),
}


@pytest.mark.parametrize("name", matmul_vector.VECTORS)
def test_packed_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_vector(PACKED["1 row, groups of 32"], name, monkeypatch)


@pytest.mark.parametrize("case", ["9 rows, halves", "3 rows, groups of 6"])
def test_layouts_of_packed_weights(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul_vector, "FEW", 4)  # more rows are several blocks
    check_vector(PACKED[case], "vector 64/8", monkeypatch)


@functools.cache
def bytes_with_offsets() -> ir.Graph:
    """4 rows, 8 bits, 4 groups of 6 of which the last is shorter, with offsets."""
    words = Constant(whole(8, 40, dtype=torch.int32))
    args = [real(4, 20), words, weight(4, 40), weight(4, 40), 37, 8, 6, weight(37)]
    return Builder("webgpu.linear_packed", [*args, [real(4, 37)]]).graph


def test_packed_bytes_with_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    check_vector(bytes_with_offsets, "vector 64/4", monkeypatch)


@pytest.mark.parametrize("name", packed_linear.BLOCKS)
def test_blocks_of_packed_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for graph in PACKED.values():
        wanted(graph)
    blocks = {name: packed_linear.BLOCKS[name]}
    monkeypatch.setattr(packed_linear, "BLOCKS", blocks)
    monkeypatch.setattr(packed_linear, "_forms", lambda g, *args: [name])
    for graph in PACKED.values():
        check(graph, ["linear_packed"])


def attention() -> ir.Graph:
    """9 queries of 3 heads over 150 keys of one, in two splits of 128 and 22; a head of
    12 columns, which no slice of keys divides, and of 20 values."""
    name = "aten.scaled_dot_product_attention.default"
    q, k, v = real(2, 6, 9, 12), real(2, 2, 150, 12), real(2, 2, 150, 20)
    named = {"attn_mask": real(9, 150), "enable_gqa": True}
    return Builder(name, filled(name, [q, k, v], named)).graph


def narrow_attention() -> ir.Graph:
    """16 columns, which four invocations can take; splits of 8 keys, the last of 5."""
    name = "aten.scaled_dot_product_attention.default"
    q, k = real(1, 2, 9, 16), real(1, 2, 29, 16)
    return Builder(name, filled(name, [q, k, k], {"is_causal": True})).graph


# Tiles of 4 rows are what smaller calls get, in test_attention.py; those of 16 repeat
# more of the same lines.
@pytest.mark.parametrize("rows", [pytest.param(16, marks=pytest.mark.long), 8])
def test_rows_of_attention(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_split, "TILE_ROWS", (rows,))
    check(attention, ["attention_flash", "attention_merge"])


# Subgroups have 4 invocations under pytest: there are 16 of them, and with a workgroup
# of 4 a single one, which passes nothing through workgroup memory.
@pytest.mark.parametrize(("rows", "workgroup"), [(8, 64), (4, 4)])
def test_rows_of_attention_across_subgroups(
    rows: int, workgroup: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = attention if workgroup > 4 else narrow_attention
    monkeypatch.setattr(attention_split, "TILE_ROWS", (rows,))
    monkeypatch.setattr(attention_split, "_WORKGROUP", workgroup)
    check(graph, ["attention_flash", "attention_merge"], subgroups=True)


# -- the choice -----------------------------------------------------------------------

LEAST = replace(AOT_CAPS, max_invocations=128, workgroup_memory=8 << 10)


def test_tiles_stay_within_limits() -> None:
    assert sum(not tile.fits(AOT_CAPS) for tile in gpu_tiles.TILES) == 3
    for tile in gpu_tiles.TILES:
        assert tile.invocations * tile.a_loads * 4 == tile.rows * tile.depth
        assert tile.invocations * tile.b_loads * 4 == tile.columns * tile.depth
        assert tile.rows % tile.high == 0 == tile.columns % tile.wide
        assert tile.depth % (4 * tile.split) == 0
        assert tile.invocations >= 64
    offered = gpu_tiles.tiles_for(LEAST, 1, (4096, 4096, 4096), "f32")
    assert offered
    for name in offered:
        tile = gpu_tiles.BY_NAME[name]
        assert tile.invocations <= 128
        assert tile.memory <= 8 << 10


@pytest.mark.parametrize(
    ("m", "n", "rows", "columns"),
    [
        (4096, 4096, 128, 128),
        (1024, 1024, 64, 64),
        (16, 8192, 16, 64),
        (16384, 10, 64, 16),
    ],
)
def test_the_default_fits_the_size(m: int, n: int, rows: int, columns: int) -> None:
    tile = gpu_tiles.BY_NAME[gpu_tiles.tiles_for(AOT_CAPS, 1, (m, n, 1024), "f32")[0]]
    assert (tile.rows, tile.columns) == (rows, columns)


def test_a_wider_gpu_gets_smaller_tiles() -> None:
    large, small = (
        gpu_tiles.BY_NAME[
            gpu_tiles.tiles_for(
                replace(AOT_CAPS, simds=simds), 1, (1024, 1024, 64), "f32"
            )[0]
        ]
        for simds in (16, 256)
    )
    assert large.rows * large.columns > small.rows * small.columns


def test_small_products_split_k() -> None:
    caps = replace(AOT_CAPS, simds=160)
    for m, n, k, splits in ((64, 576, 576, True), (2048, 2048, 576, False)):
        default = gpu_tiles.tiles_for(caps, 1, (m, n, k), "f32")[0]
        assert (gpu_tiles.BY_NAME[default].split > 1) == splits
    # For sums of sixteen products, splitting does not pay.
    default = gpu_tiles.tiles_for(caps, 1, (64, 576, 16), "f32")[0]
    assert gpu_tiles.BY_NAME[default].split == 1


def test_f16_sums_have_no_tiles_of_many_registers() -> None:
    for name in gpu_tiles.tiles_for(AOT_CAPS, 1, (4096, 4096, 4096), "f16"):
        tile = gpu_tiles.BY_NAME[name]
        assert tile.high * tile.wide <= 32


def test_no_default_leaves_most_of_a_gpu_idle() -> None:
    sizes = [1, 3, 17, 65, 129, 256, 512, 1000, 4096]
    for m in sizes:
        for n in sizes:
            waves = {
                tile.name: tile.count(1, m, n) * tile.waves for tile in gpu_tiles.TILES
            }
            default = gpu_tiles.tiles_for(AOT_CAPS, 1, (m, n, 512), "f32")[0]
            assert waves[default] >= min(AOT_CAPS.simds, max(waves.values()) / 4)


@pytest.mark.parametrize("m", [1, 8, 16])
def test_few_rows_have_a_wave_for_every_simd(m: int) -> None:
    caps = replace(AOT_CAPS, simds=160)
    for k in (768, 4096):
        for n in (768, 1000, 4096):
            args = filled("aten.linear.default", [real(m, k), weight(n, k)])
            graph = Builder("aten.linear.default", args).graph
            plan = Planner(graph, caps).upper_bound()
            form = matmul_vector.VECTORS[plan.choices[0].chosen]
            waves = math.prod(plan.dispatches[0].groups) * form.workgroup // 64
            assert waves >= caps.simds, (k, n)


@pytest.mark.parametrize("caps", [AOT_CAPS, replace(AOT_CAPS, is_cpu=True)])
def test_neighbours_are_offered_on_gpus(caps: Caps) -> None:
    args = filled("aten.mm.default", [real(512, 512), real(512, 512)])
    plan = Planner(Builder("aten.mm.default", args).graph, caps).upper_bound()
    (choice,) = plan.choices
    offered = [name for name in choice.names if name in gpu_tiles.BY_NAME]
    assert len(offered) == (1 if caps.is_cpu else gpu_tiles.OFFERED)
    assert choice.chosen == choice.names[0]
    forced = {choice.key: offered[-1]}
    other = Planner(Builder("aten.mm.default", args).graph, caps, forced).upper_bound()
    assert other.choices[0].chosen == offered[-1]
    assert other.pipelines != plan.pipelines


@pytest.mark.parametrize(
    ("heads", "rows", "keys", "tile", "splits"),
    [
        (12, 1, 1024, 4, 16),  # decoding
        (8, 4, 2048, 4, 32),
        (8, 8, 131072, 8, 48),  # eight heads share keys: they are loaded once
        (12, 128, 128, 4, 1),
        (12, 512, 512, 16, 1),
        (1, 1, 131072, 4, 128),
        (2, 3, 17, 4, 1),
    ],
)
def test_attention_keeps_a_gpu_busy(
    heads: int, rows: int, keys: int, tile: int, splits: int
) -> None:
    form = attention_split.form_for(192, heads, rows, keys, 16, 16)
    assert (form.rows, form.splits) == (tile, splits)


def test_attention_takes_larger_tiles_where_there_are_fewer_simds() -> None:
    rows = [
        attention_split.form_for(n, 12, 128, 128, 16, 16).rows for n in (192, 96, 24)
    ]
    assert rows == [4, 8, 16]


@pytest.mark.parametrize(
    ("simds", "rows", "first"),
    [
        (192, 128, "subgroups"),  # tiles of 4 rows
        (96, 128, "workgroup"),  # of 8, which keep 96 SIMDs busy
        (192, 8, "subgroups"),  # of 8, which do not
        (24, 512, "workgroup"),  # of 16
    ],
)
def test_attention_combines_rows_across_subgroups_where_waves_are_few(
    simds: int, rows: int, first: str
) -> None:
    form = attention_split.form_for(simds, 12, rows, 64, 16, 16)
    gpu = replace(AOT_CAPS, subgroups=True)
    offered = attention_split.running_forms(gpu, form)
    assert offered[0] == first
    assert set(offered) == {"subgroups", "workgroup"}
    for caps in (AOT_CAPS, replace(gpu, is_cpu=True)):
        assert attention_split.running_forms(caps, form) == ["workgroup"]


def test_attention_stays_within_limits() -> None:
    for fours in range(1, 65):
        form = attention_split.form_for(64, 32, 2048, 2048, fours, fours)
        rows, deep, ahead = (form.consts[name] for name in ("ROWS", "SLICE", "AHEAD"))
        groups = 64 // fours
        keys = -(-64 // (groups * ahead)) * groups * ahead
        floats = 64 * 4 * (deep + 1) + keys * rows + 64 + 4 * rows
        assert 4 * floats <= AOT_CAPS.workgroup_memory
        # What a subgroup has of all rows takes the place of a key.
        assert rows <= 4 * deep
        # The sums of four rows take the place of the slice of keys.
        assert 4 * groups * fours <= 64 * deep
