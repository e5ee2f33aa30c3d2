"""Matrix products on CPU adapters: the unrolled functions of `matmul_lanes.wgsl`.

A software driver loads lane by lane, with a bounds check for each element, in unrolled
code. So the body of the loop over k is kept as short as it can be: one row of B and one
column of A for all rows of a tile. Four k at once, with loads of four elements along k,
are half as fast: that code no longer fits the processor's caches. They pay only where
there are few rows, or few loads because B is quantized.

B is loaded packed (a constant), four columns at a time, one at a time, or as codes of
4 or 8 bits that are dequantized in registers, once for all rows of a tile. A is loaded
packed (a constant, or rows that would fall on the same cache lines) or as it is. Where
constants cannot be packed (`Caps.packs`), a B that is contiguous along k is loaded four
k at a time, for each of four columns.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...plan.host_packing import packing
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.traced_int import rung, starts
from ...plan.wgsl_text import Param
from . import lane_tiles
from .product import Codes, Product, batch_code, finish_code, function, quad_code

COLUMNS = 32  # of a packed block of B


@packing("matmul_columns")
def pack_columns(data: np.ndarray) -> np.ndarray:
    """[..., K, N] as [..., blocks, K, 32]: blocks of 32 columns, padded with zeros."""
    *batch, depth, columns = data.shape
    whole, rest = divmod(columns, COLUMNS)
    packed = np.zeros((*batch, -(-columns // COLUMNS), depth, COLUMNS), data.dtype)
    # One copy: weights are large, and mostly come transposed.
    split = data[..., : whole * COLUMNS].reshape(*batch, depth, whole, COLUMNS)
    packed[..., :whole, :, :] = np.swapaxes(split, -3, -2)
    if rest:
        packed[..., whole, :, :rest] = data[..., whole * COLUMNS :]
    return packed


@packing("matmul_rows")
def pack_rows(data: np.ndarray, loads: int, lanes: int) -> np.ndarray:
    """[..., M, K] as [..., blocks, K, lanes, loads], so that a lane's rows, which are
    `lanes` apart, are contiguous; blocks of loads x lanes rows, padded with zeros."""
    *batch, height, depth = data.shape
    rows = loads * lanes
    blocks = -(-height // rows)
    if height % rows:
        padded = np.zeros((*batch, blocks * rows, depth), data.dtype)
        padded[..., :height, :] = data
        data = padded
    split = data.reshape(*batch, blocks, loads, lanes, depth)
    return np.ascontiguousarray(np.swapaxes(split, -3, -1))


@dataclass(frozen=True)
class _Tile(lane_tiles.Rows):
    """Rows of a tile, and how many k an iteration takes."""

    unroll: int


@dataclass
class _Side:
    """How one operand is loaded: packed, quads (four columns of B), depth (four k),
    codes, or single elements."""

    tensor: Tensor
    kind: str
    stride: int  # along k


def _aligned(x: Tensor, unit: int) -> bool:
    """Whether vec4 loads along the dimension of stride `unit` are aligned."""
    rest = [s for s, e in zip(x.strides, x.shape) if e != 1]
    if unit in rest:
        rest.remove(unit)
    return unit == 1 and x.offset % 4 == 0 and all(s % 4 == 0 for s in rest)


def _once(x: Tensor) -> Tensor:
    """A constant without the batch dimensions over which it is broadcast."""
    keep = [1 if s == 0 else e for s, e in zip(x.strides[:-2], x.shape[:-2])]
    return x.with_view((*keep, *x.shape[-2:]), x.strides)


def _worth_packing(product: Product, tile: _Tile) -> bool:
    """Whether copying A costs less than the cache misses of reading it as it is.

    All rows of a tile are read at one k. Rows a power of two apart fall on few of a
    cache's 64 sets of 8 lines, and B needs some of them too.
    """
    a = product.a
    if (
        tile.unroll > 1
        or a.strides[-1] != 1
        or product.m % tile.count
        or product.n < 64
        or product.k < 64
    ):
        return False
    lines = math.gcd(64, a.strides[-2] * 4 // 64) if a.strides[-2] % 16 == 0 else 1
    return tile.count * lines > 4 * 64


def _rows_side(g: Recorder, product: Product, tile: _Tile) -> _Side:
    a = product.a
    loads, sharing = tile.loads, tile.sharing
    if tile.unroll == 1 and a.is_constant and a.numel and g.caps.packs:
        blocks = -(-product.m // tile.count)
        once = _once(a)
        shape = (*once.shape[:-2], blocks, product.k, sharing, loads)
        packed = g.prepack(once, "matmul_rows", shape, args=(loads, sharing))
        return _Side(packed, "packed", tile.count)
    if tile.unroll == 4 and _aligned(a, a.strides[-1]):
        return _Side(a, "depth", 1)
    if g.caps.packs and _worth_packing(product, tile):
        packed = g.once(f"rows {tile.count}", a, lambda: _packed_rows(g, a, tile))
        return _Side(packed, "packed", tile.count)
    return _Side(a, "single", a.strides[-1])


def _packed_rows(g: Recorder, a: Tensor, tile: _Tile) -> Tensor:
    """The layout of `pack_rows`, made on the GPU of an A that is no constant."""
    *lead, m, k = a.shape
    loads, sharing = tile.loads, tile.sharing
    flat = a.try_view((math.prod(lead) * m, k))
    if flat is None or loads != 4 or k % 4 or not _aligned(flat, 1):
        view = g.reshape(a, (*lead, m // tile.count, loads, sharing, k))
        return g.contiguous(view.transpose(-3, -1))
    out = g.temp((*lead, m // tile.count, k, sharing, loads), a.dtype)
    g.dispatch(
        "matmul_pack",
        {"a": flat},
        {"y": out},
        {"quads": k // 4, "row": flat.strides[0], "offset": flat.offset},
        invocations=out.numel // 16,
        workgroup=lane_tiles.workgroup(tile.lanes),
        consts={"LANES": sharing},
        vec4=["a", "y"],
        raw=["a"],
    )
    return out


def column_blocks(g: Recorder, b: Tensor) -> Tensor:
    """A constant [..., K, N] as `pack_columns` lays it out."""
    *batch, depth, columns = b.shape
    shape = (*batch, -(-columns // COLUMNS), depth, COLUMNS)
    return g.prepack(b, "matmul_columns", shape)


def _is_deep(g: Recorder, product: Product) -> bool:
    """Whether B is loaded along k."""
    b = product.b
    plain = product.codes is None and not g.caps.packs
    return plain and product.k % 4 == 0 and _aligned(b, b.strides[-2])


def _columns_side(g: Recorder, product: Product) -> _Side:
    b = product.b
    if product.codes:
        return _Side(b, "codes", 1)
    if b.is_constant and b.numel and g.caps.packs:
        return _Side(column_blocks(g, _once(b)), "packed", COLUMNS)
    if _is_deep(g, product):
        return _Side(b, "depth", 1)
    if product.n % 4 == 0 and _aligned(b, b.strides[-1]):
        return _Side(b, "quads", b.strides[-2])
    return _Side(b, "single", b.strides[-2])


def lane_rows(g: Recorder, product: Product) -> int:
    """Rows of a tile, whose time is about its rows plus 12 for loading B's row."""
    most = 8
    if lane_tiles.lanes(g.caps) > 1:
        most = 16 if product.codes else 32
    sizes = [1 << n for n in range(most.bit_length())]
    # Plans that are made ahead are few.
    m = product.m if g.caps.packs else rung(product.m)
    return min(sizes, key=lambda rows: (-(-m // rows) * (rows + 12), rows))


def multiply_lanes(g: Recorder, product: Product, out: Output, split: int = 1) -> None:
    """Dispatches the product in tiles of `lane_rows` rows divided by `split`."""
    rows = lane_rows(g, product) // split
    few = product.codes is not None or rows <= 4 or _is_deep(g, product)
    unroll = 4 if few and product.k % 4 == 0 else 1
    tile = _Tile(rows, lane_tiles.lanes(g.caps), unroll)
    for strip in _strips(product, tile) if g.caps.packs else [product]:
        _multiply(g, strip, tile, out)


def _strips(product: Product, tile: _Tile) -> Iterator[Product]:
    """The product in strips of rows, where A is large and will be copied: a copy of all
    of it would take a third of the memory again."""
    a, bias = product.a, product.bias
    by_column = bias is None or bias.rank < 2
    plain = product.row_scale is None and product.heads == 1 and by_column
    whole = a.numel + product.b.numel + product.m * product.n
    count = 1
    if plain and math.prod(product.batch) == 1 and not a.is_constant:
        while a.numel >= 2**18 and a.numel // count > whole // 12:
            count *= 2
    if (
        count == 1
        or product.m % (count * tile.count)
        or not _worth_packing(product, tile)
    ):
        yield product
        return
    height = product.m // count
    for first in starts(product.m, height):
        yield replace(
            product,
            a=a.slice(-2, first, height),
            first_row=product.first_row + first,
            rows=product.rows or product.m,
        )


def _multiply(g: Recorder, product: Product, tile: _Tile, out: Output) -> None:
    left, right = _rows_side(g, product, tile), _columns_side(g, product)
    a, b = product.a, product.b
    batch = math.prod(product.batch)
    tiles_m, tiles_n = -(-product.m // tile.count), -(-product.n // (4 * tile.lanes))
    tiles = batch * tiles_m * tiles_n
    params: dict[str, Param] = {
        "m": product.m,
        "n": product.n,
        "k": product.k,
        "tiles": tiles,
        "tiles_m": tiles_m,
        "tiles_n": tiles_n,
        "a_stride": left.stride,
        "b_stride": right.stride,
        "a_row": a.strides[-2],
        "b_col": b.strides[-1],
    }
    if left.kind == "packed":
        params["a_block"] = product.k * tile.count
        a = _matrices(left.tensor, 4, product.batch)
    if right.kind == "packed":
        params["b_block"] = math.prod(right.tensor.shape[-2:])
        one_each = product.groups is None
        b = _matrices(right.tensor, 3, product.batch if one_each else b.shape[:1])
    if product.codes:
        params["columns"] = product.codes.layout.columns
        b = _matrices(right.tensor, 2, product.batch)
    batches, more = batch_code(Product(a, b, groups=product.groups))
    finish, inputs, extra = finish_code(product, out.dtype)
    quads = [] if right.kind == "single" else ["b"]
    if left.kind == "depth" or (left.kind == "packed" and tile.in_fours):
        quads.append("a")
    together = product.n % 4 == 0 and right.kind != "single"
    if together and not product.gated:
        quads.append("y")
    group = lane_tiles.workgroup(tile.lanes)
    code = _lane_code(tile, left.kind, right.kind, "y" in quads, bool(product.gated))
    if product.gated:
        code = f"{code}\n{quad_code(product.gated, out.dtype)}"
    if product.codes:
        code = f"{code}\n{_numbers_code(product.codes)}"
        inputs["s"] = product.codes.scales
        if product.codes.offsets is not None:
            inputs["o"] = product.codes.offsets
        quads += ["s", "o"]
    g.dispatch(
        "matmul_lanes",
        {"a": left.tensor, "b": right.tensor, **inputs},
        {"y": out},
        {**params, **more, **extra},
        workgroups=-(-tiles * tile.lanes // group),
        workgroup=group,
        consts={
            "ROWS": tile.count,
            "LANES": tile.lanes,
            "A_LOADS": tile.loads,
            "UNROLL": tile.unroll,
        },
        vec4=quads,
        raw=["a", "b", "bias"],
        code="\n".join([lane_tiles.mapping(tile.lanes), batches, finish, code]),
    )


def _matrices(x: Tensor, inner: int, batch: tuple[int, ...]) -> Tensor:
    """A packed tensor with its last `inner` dimensions as one matrix, whose batch
    strides are those of the packing."""
    keep = x.rank - inner
    view = x.with_view((*x.shape[:keep], 1, 1), (*x.strides[:keep], 1, 1))
    return view.expand((*batch, 1, 1))


@functools.cache
def _lane_code(
    tile: _Tile, left: str, right: str, quad_store: bool, gated: bool
) -> str:
    """The unrolled functions of matmul_lanes for one way of loading each operand."""
    body = _one_k(tile, left, right) if tile.unroll == 1 else _four_k(tile, left, right)
    signature = (
        "multiply_add(a: ptr<function, RowStarts>, b: ptr<function, ColumnStarts>,"
        " a_at: i32, b_at: i32, a_stride: i32, b_stride: i32, c: ptr<function, Tile>)"
    )
    return "\n".join(
        [
            _begin(tile, left, right),
            function(signature, body),
            _columns_of(right == "single"),
            _store_row(quad_store, gated),
        ]
    )


def _one_k(tile: _Tile, left: str, right: str) -> list[str]:
    """Statements that add one k's products to all results of a tile."""
    if left == "packed":
        lines, loaded = tile.load("a", "(*a)[0] + a_at")
    else:
        loaded = [f"a{q}" for q in range(tile.loads)]
        lines = [f"let a{q} = get_a((*a)[{q}] + a_at);" for q in range(tile.loads)]
    lines.append(f"let v = {_columns_at(right, 'b_at')};")
    return [*lines, *tile.products(loaded, "v")]


def _four_k(tile: _Tile, left: str, right: str) -> list[str]:
    """The same for four k."""
    lines = []
    for q in range(tile.loads):
        load = f"get_a4(((*a)[{q}] + a_at) >> 2u)"
        if left == "single":
            each = (f"get_a((*a)[{q}] + a_at + {k} * a_stride)" for k in range(4))
            load = f"vec4<f32>({', '.join(each)})"
        lines.append(f"let a{q} = {load};")
    if right == "codes":
        lines += [
            "let words = words_at(b_at, (*b)[0]);",
            "let group = (b_at / GROUP) * p.columns + (*b)[0];",
            "let scale = get_s4(group);",
        ]
    if right == "depth":
        lines += [f"let b{j} = get_b4(((*b)[{j}] + b_at) >> 2u);" for j in range(4)]
    for k in range(4):
        load = _columns_at(right, f"b_at + {k} * b_stride")
        if right == "codes":
            load = f"numbers(words >> vec4<u32>({8 * k}u), group, scale)"
        elif right == "depth":
            load = f"vec4<f32>(b0[{k}], b1[{k}], b2[{k}], b3[{k}])"
        lines.append(f"let v{k} = {load};")
        lines += tile.products([f"a{q}[{k}]" for q in range(tile.loads)], f"v{k}")
    return lines


def _columns_at(right: str, at: str) -> str:
    """Four columns of B at one k."""
    if right == "single":
        loads = ", ".join(f"get_b((*b)[{j}] + {at})" for j in range(4))
        return f"vec4<f32>({loads})"
    return f"get_b4(((*b)[0] + {at}) >> 2u)"


def _columns_of(spread: bool) -> str:
    """The four columns of a lane: neighbours, or LANES apart."""
    first, stride = ("lane", "LANES") if spread else ("lane * 4", "1")
    body = [
        f"return vec4<i32>(tile_n * 4 * LANES + {first})"
        f" + {stride} * vec4<i32>(0, 1, 2, 3);"
    ]
    return function("columns_of(tile_n: i32, lane: i32) -> vec4<i32>", body)


def _begin(tile: _Tile, left: str, right: str) -> str:
    """The function `begin`: where a lane's loads start, at k = 0."""
    body = ["let a_base = a_matrix(batch);", "let b_base = b_matrix(batch);"]
    for q in range(tile.loads):
        row = f"tile_m * ROWS + {tile.lane} + {q * tile.sharing}"
        start = f"min({row}, p.m - 1) * p.a_row"
        if left == "packed":
            start = f"tile_m * p.a_block + {tile.lane} * {tile.loads} + {q}"
        body.append(f"(*a)[{q}] = a_base + {start};")
    if right == "packed":
        body += [
            "let column = tile_n * 4 * LANES + lane * 4;",
            f"(*b)[0] = b_base + (column / {COLUMNS}) * p.b_block"
            f" + column % {COLUMNS};",
        ]
    elif right == "codes":
        body.append("(*b)[0] = min(tile_n * LANES + lane, p.columns - 1);")
    elif right == "quads":
        column = "min(tile_n * 4 * LANES + lane * 4, p.n - 4)"
        body.append(f"(*b)[0] = b_base + {column};")
    else:
        columns = "lane * 4 + {j}" if right == "depth" else "lane + {j} * LANES"
        for j in range(4):
            column = f"min(tile_n * 4 * LANES + {columns.format(j=j)}, p.n - 1)"
            body.append(f"(*b)[{j}] = b_base + {column} * p.b_col;")
    return function(
        "begin(batch: i32, tile_m: i32, tile_n: i32, lane: i32,"
        " a: ptr<function, RowStarts>, b: ptr<function, ColumnStarts>)",
        body,
    )


def _numbers_code(codes: Codes) -> str:
    """words_at: the words with the codes of four k, shifted to them, and numbers: those
    of one k dequantized."""
    layout = codes.layout
    shift = f"u32((k / 4) % {layout.per_word // 4}) * 4u"
    word = f"(k / {layout.per_word}) * p.columns + column"
    low = "vec4<f32>(words & vec4<u32>(15u)) - 8.0"
    if layout.bits == 8:
        low = "vec4<f32>(bitcast<vec4<i32>>(words << vec4<u32>(24u)) >> vec4<u32>(24u))"
    value = f"({low}) * scale"
    if codes.offsets is not None:
        # An offset is for the code as it is stored, plus 8.
        value = f"{value.replace(' - 8.0', '')} + get_o4(group)"
    return "\n".join(
        [
            f"const GROUP = {layout.group};",
            function(
                "words_at(k: i32, column: i32) -> vec4<u32>",
                [
                    f"let at = {word};",
                    f"return bitcast<vec4<u32>>(get_b4(at)) >> vec4<u32>({shift});",
                ],
            ),
            function(
                "numbers(words: vec4<u32>, group: i32, scale: vec4<f32>) -> vec4<f32>",
                [f"return {value};"],
            ),
        ]
    )


def _store_row(quads: bool, gated: bool) -> str:
    signature = "store_row(batch: i32, row: i32, column: vec4<i32>, v: vec4<f32>)"
    if gated:
        return function(signature, ["put_quad(batch, row, column[0], v);"])
    if quads:
        results = ", ".join(
            f"finish(batch, row, column[{j}], v[{j}])" for j in range(4)
        )
        body = [
            f"let r = vec4<f32>({results});",
            "if (column[0] < p.n) { put_y4((y_at(batch, row) + column[0]) >> 2u, r); }",
        ]
        return function(signature, body)
    body = []
    for j in range(4):
        body.append(
            f"if (column[{j}] < p.n) {{ put_y(y_at(batch, row) + column[{j}],"
            f" finish(batch, row, column[{j}], v[{j}])); }}"
        )
    return function(signature, body)
