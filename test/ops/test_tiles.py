"""Every tile of every kernel for GPUs: right at odd sizes, for every layout.

A table of tiles is cut down to one, so that it is what the ops choose.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

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
from executorch_webgpu.ops.matmul import gpu_tiles, matmul
from executorch_webgpu.ops.quantized import packed_linear
from executorch_webgpu.plan.caps import AOT_CAPS, Caps
from executorch_webgpu.plan.planner import Planner


class Products(nn.Module):
    """Operands plain, transposed, sliced and batched, with what follows a sum; in
    single and half precision and of integers. Sizes are no part of a kernel's text, so
    there are few to compile."""

    def forward(self, x, y, z, h, w, b, i, j):
        return (
            x @ y,  # 65 x 17 x 129
            x[:, :1] @ y[:1],
            x[:1] @ y,
            x[:3] @ y[:, :1],
            F.gelu(torch.addmm(x[0, :1], y.t(), x.t(), beta=0.5, alpha=2.0)),
            z @ z.transpose(1, 2),  # 3 of 17 x 65 x 17
            z[:, ::2, 1:] @ z[:, :9, 1:].transpose(1, 2),
            F.relu(F.linear(h, w, b)),  # 17 x 129 x 65
            i @ j,
        )

    def inputs(self) -> tuple[torch.Tensor, ...]:
        single = [(65, 17), (17, 129), (3, 17, 65)]
        halves = [(17, 129), (65, 129), (65,)]
        integers = [(17, 65), (65, 3)]
        return (
            *(torch.zeros(shape) for shape in single),
            *(torch.zeros(shape, dtype=torch.float16) for shape in halves),
            *(torch.zeros(shape, dtype=torch.int32) for shape in integers),
        )


class Convolutions(nn.Module):
    """65, 2 x 11 and 9 filters; padded, in groups, strided and dilated; three
    dimensions; single and half precision."""

    def __init__(self) -> None:
        super().__init__()
        self.many = nn.Conv2d(17, 65, 3, padding=1)
        self.parts = nn.Conv2d(34, 22, (3, 2), groups=2, dilation=2, stride=2).half()
        self.volume = nn.Conv3d(3, 9, 2)

    def forward(self, x, h, v):
        return self.many(x), F.gelu(self.parts(h)), self.volume(v)

    def inputs(self) -> tuple[torch.Tensor, ...]:
        return (
            torch.zeros(3, 17, 9, 11),
            torch.zeros(3, 34, 9, 11, dtype=torch.float16),
            torch.zeros(1, 3, 5, 4, 7),
        )


@functools.cache
def lowered(kind: type[Products] | type[Convolutions]) -> ir.Graph:
    module = kind()
    program = lower(module, module.inputs())
    ((_, blob),) = program.delegates
    return serialize.read(blob)


# Made once: what is wanted of a graph is kept by what makes it.
PRODUCTS = functools.partial(lowered, Products)
CONVOLUTIONS = functools.partial(lowered, Convolutions)


def packed(rows: int, group: int, form: Callable[[Any], Any]) -> ir.Graph:
    """A linear layer of 4-bit weights, 17 groups deep, with 37 outputs."""
    depth = 17 * group
    codes = Constant(whole(37, depth // 2, dtype=torch.uint8))
    args = [real(rows, depth), codes, weight(17, 37), group, weight(37)]
    args.append([real(rows, 37)])
    return Builder("et_vk.linear_q4gsw.default", form(args)).graph


@pytest.mark.parametrize("tile", gpu_tiles.TILES, ids=lambda tile: tile.name)
def test_products(tile: gpu_tiles.Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted(PRODUCTS)
    monkeypatch.setattr(gpu_tiles, "TILES", (tile,))
    monkeypatch.setattr(matmul, "_FEW", 0)
    check(PRODUCTS, ["matmul_tiled"])


@pytest.mark.parametrize("tile", gpu_tiles.TILES, ids=lambda tile: tile.name)
def test_convolutions(tile: gpu_tiles.Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted(CONVOLUTIONS)
    monkeypatch.setattr(gpu_tiles, "TILES", (tile,))
    check(CONVOLUTIONS, ["conv_tiled"])


@pytest.mark.parametrize("name", matmul.VECTORS)
def test_few_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted(PRODUCTS)
    monkeypatch.setattr(matmul, "VECTORS", {name: matmul.VECTORS[name]})
    check(PRODUCTS, ["matmul_vector", "matmul_tiled"])


PACKED = [
    functools.partial(packed, rows, group, form)
    for rows in (1, 3, 17)
    # Not a multiple of four: loads are guarded.
    for group, form in ((32, list), (32, half), (6, list))
]


@pytest.mark.parametrize("name", packed_linear.SPLITS)
def test_splits_of_packed_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [graph for graph in PACKED if graph.args[0] <= 4]
    for graph in few:
        wanted(graph)
    splits = {name: packed_linear.SPLITS[name]}
    monkeypatch.setattr(packed_linear, "SPLITS", splits)
    for graph in few:
        check(graph, ["linear_packed_split"])


@pytest.mark.parametrize("name", packed_linear.BLOCKS)
def test_blocks_of_packed_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for graph in PACKED:
        wanted(graph)
    blocks = {name: packed_linear.BLOCKS[name]}
    monkeypatch.setattr(packed_linear, "BLOCKS", blocks)
    monkeypatch.setattr(packed_linear, "_forms", lambda g, *args: [name])
    for graph in PACKED:
        check(graph, ["linear_packed"])


def attention() -> ir.Graph:
    """9 queries of 3 heads over 150 keys of one, in two splits of 128 and 22; a head of
    12 columns, which no slice of keys divides, and of 20 values."""
    name = "aten.scaled_dot_product_attention.default"
    q, k, v = real(2, 6, 9, 12), real(2, 2, 150, 12), real(2, 2, 150, 20)
    named = {"attn_mask": real(9, 150), "enable_gqa": True}
    return Builder(name, filled(name, [q, k, v], named)).graph


# Tiles of 4 rows are what smaller calls get, in test_attention.py.
@pytest.mark.parametrize("rows", [16, 8])
def test_rows_of_attention(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_split, "TILE_ROWS", (rows,))
    check(attention, ["attention_flash", "attention_merge"])


# -- the choice -----------------------------------------------------------------------

LEAST = replace(AOT_CAPS, max_invocations=128, workgroup_memory=8 << 10)


def test_tiles_stay_within_limits() -> None:
    for tile in gpu_tiles.TILES:
        assert tile.fits(AOT_CAPS)
        assert tile.rows % tile.high == 0 == tile.columns % tile.wide
        assert tile.invocations >= 64
    offered = gpu_tiles.tiles_for(LEAST, 1, 4096, 4096)
    assert offered
    for name in offered:
        tile = gpu_tiles.BY_NAME[name]
        assert tile.invocations <= 128
        assert tile.memory <= 8 << 10


@pytest.mark.parametrize(
    ("m", "n", "rows", "columns"),
    [
        (4096, 4096, 128, 128),
        (1024, 1024, 64, 128),
        (256, 256, 32, 32),
        (16, 8192, 16, 64),
        (8, 16384, 8, 128),
        (16384, 10, 64, 16),
    ],
)
def test_the_default_fits_the_size(m: int, n: int, rows: int, columns: int) -> None:
    tile = gpu_tiles.BY_NAME[gpu_tiles.tiles_for(AOT_CAPS, 1, m, n)[0]]
    assert (tile.rows, tile.columns) == (rows, columns)


def test_no_default_leaves_most_of_a_gpu_idle() -> None:
    sizes = [1, 3, 17, 65, 129, 256, 512, 1000, 4096]
    for m in sizes:
        for n in sizes:
            groups = {tile.name: tile.count(1, m, n) for tile in gpu_tiles.TILES}
            default = gpu_tiles.tiles_for(AOT_CAPS, 1, m, n)[0]
            assert groups[default] >= min(gpu_tiles.BUSY / 2, max(groups.values()) / 4)


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
    form = attention_split.form_for(heads, rows, keys, 16, 16)
    assert (form.rows, form.splits) == (tile, splits)


def test_attention_stays_within_limits() -> None:
    for fours in range(1, 65):
        form = attention_split.form_for(32, 2048, 2048, fours, fours)
        rows, deep, ahead = (form.consts[name] for name in ("ROWS", "SLICE", "AHEAD"))
        groups = 64 // fours
        keys = -(-64 // (groups * ahead)) * groups * ahead
        floats = 64 * 4 * (deep + 1) + keys * rows + 64 + 4 * rows
        assert 4 * floats <= AOT_CAPS.workgroup_memory
        # The sums of four rows take the place of the slice of keys.
        assert 4 * groups * fours <= 64 * deep
