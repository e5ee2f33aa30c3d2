"""Matrix products on CPU adapters: the unrolled parts of `matmul_lanes.wgsl`.

An operand is loaded in one of a few ways: packed (a constant, or a large operand
that is copied first, because rows a power of two apart share cache lines), four
elements at a time along k or along the columns, one at a time, or as codes of 4 or 8
bits that become numbers in registers, once for all rows of a tile.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from ..graph import Graph, Tensor, fold
from ..kernels import Param
from ..packing import packing
from . import lanes as lane_tiles
from .product import Codes, Product, batch_code, finish_code, function, quad_code

COLUMNS = 32  # of a packed block of B


@packing("matmul_columns")
def pack_columns(data: np.ndarray) -> np.ndarray:
    """[..., K, N] as blocks of 32 columns, each a run of K rows; zeros fill up."""
    *batch, depth, columns = data.shape
    whole, rest = divmod(columns, COLUMNS)
    packed = np.zeros((*batch, -(-columns // COLUMNS), depth, COLUMNS), data.dtype)
    # Straight to its place: weights are large, and mostly come transposed.
    split = data[..., : whole * COLUMNS].reshape(*batch, depth, whole, COLUMNS)
    packed[..., :whole, :, :] = np.swapaxes(split, -3, -2)
    if rest:
        packed[..., whole, :, :rest] = data[..., whole * COLUMNS :]
    return packed


@packing("matmul_rows")
def pack_rows(data: np.ndarray, rows: int) -> np.ndarray:
    """[..., M, K] as blocks of `rows` rows: [M/rows, K/4, rows, 4]; zeros fill up."""
    *batch, height, depth = data.shape
    blocks, quads = -(-height // rows), -(-depth // 4)
    if height % rows or depth % 4:
        padded = np.zeros((*batch, blocks * rows, quads * 4), data.dtype)
        padded[..., :height, :depth] = data
        data = padded
    split = data.reshape(*batch, blocks, rows, quads, 4)
    return np.ascontiguousarray(np.swapaxes(split, -3, -2))


@dataclass
class _Side:
    """How one operand is loaded: its tensor, and whether four at a time."""

    tensor: Tensor
    # packed, quads (vec4 in the lanes' direction), depth (in the loop's), codes, single
    kind: str
    step: int  # elements per four k


def _aligned(x: Tensor, unit: int) -> bool:
    """Whether vec4 loads along the dimension of stride `unit` are possible."""
    rest = [s for s, e in zip(x.strides, x.shape) if e != 1]
    if unit in rest:
        rest.remove(unit)
    return unit == 1 and x.offset % 4 == 0 and all(s % 4 == 0 for s in rest)


def _once(x: Tensor) -> Tensor:
    """A constant without the batch dimensions over which it only repeats."""
    keep = [1 if s == 0 else e for s, e in zip(x.strides[:-2], x.shape[:-2])]
    return x.with_view((*keep, *x.shape[-2:]), x.strides)


def _worth_packing(uses: int, depth: int, other: int) -> bool:
    """Whether copying an operand of `depth` x `other` elements, each used `uses`
    times, costs less than missing the cache: its rows, a power of two apart in
    memory, would fall on the same few cache lines."""
    return uses >= 128 and depth >= 256 and other >= 256


def _rows_side(g: Graph, product: Product, rows: int) -> _Side:
    a = product.a
    if a.is_constant and a.numel:
        blocks, quads = -(-product.m // rows), -(-product.k // 4)
        once = _once(a)
        shape = (*once.shape[:-2], blocks, quads, rows, 4)
        packed = g.prepack(once, "matmul_rows", shape, args=(rows,))
        return _Side(packed, "packed", rows * 4)
    *lead, m, k = a.shape
    if k % 4 == 0 and m % rows == 0 and _worth_packing(product.n, k, m):
        view = g.reshape(a, (*lead, m // rows, rows, k // 4, 4)).transpose(-3, -2)
        return _Side(g.contiguous(view), "packed", rows * 4)
    if k % 4 == 0 and _aligned(a, a.strides[-1]):
        return _Side(a, "quads", 4)
    return _Side(a, "single", 4 * a.strides[-1])


def column_blocks(g: Graph, b: Tensor) -> Tensor:
    """A constant [..., K, N] as `pack_columns` lays it out."""
    *batch, depth, columns = b.shape
    shape = (*batch, -(-columns // COLUMNS), depth, COLUMNS)
    return g.prepack(b, "matmul_columns", shape)


def _columns_side(g: Graph, product: Product) -> _Side:
    b = product.b
    if product.codes:
        return _Side(b, "codes", 4)
    if b.is_constant and b.numel:
        return _Side(column_blocks(g, _once(b)), "packed", 4 * COLUMNS)
    *lead, k, n = b.shape
    if n % COLUMNS == 0 and _worth_packing(product.m, k, n):
        view = g.reshape(b, (*lead, k, n // COLUMNS, COLUMNS)).transpose(-3, -2)
        return _Side(g.contiguous(view), "packed", 4 * COLUMNS)
    if product.n % 4 == 0 and _aligned(b, b.strides[-1]):
        return _Side(b, "quads", 4 * b.strides[-2])
    if product.k % 4 == 0 and _aligned(b, b.strides[-2]):
        return _Side(b, "depth", 4)
    return _Side(b, "single", 4 * b.strides[-2])


def lane_rows(g: Graph, product: Product) -> int:
    """Rows of a tile: as many as registers hold, not many more than there are."""
    most = 16 if lane_tiles.lanes(g.caps) > 1 else 8
    return min(most, 1 << max(0, product.m - 1).bit_length())


def multiply_lanes(g: Graph, product: Product, out: Tensor, split: int = 1) -> None:
    """Tiles of the usual number of rows, divided by `split`."""
    count = lane_tiles.lanes(g.caps)
    rows = lane_rows(g, product) // split
    left, right = _rows_side(g, product, rows), _columns_side(g, product)
    a, b = product.a, product.b
    batch = math.prod(product.batch)
    tiles_m, tiles_n = -(-product.m // rows), -(-product.n // (4 * count))
    tiles = batch * tiles_m * tiles_n
    params: dict[str, Param] = {
        "m": product.m,
        "n": product.n,
        "k": product.k,
        "tiles": tiles,
        "tiles_m": tiles_m,
        "tiles_n": tiles_n,
        "a_step": left.step,
        "b_step": right.step,
        "a_row": a.strides[-2],
        "a_col": a.strides[-1],
        "b_row": b.strides[-2],
        "b_col": b.strides[-1],
    }
    if left.kind == "packed":
        params["a_block"] = math.prod(left.tensor.shape[-3:])
        a = _matrices(left.tensor, 4, product.batch)
    if right.kind == "packed":
        params["b_block"] = math.prod(right.tensor.shape[-2:])
        params["b_row"] = COLUMNS
        b = _matrices(right.tensor, 3, product.batch)
    if product.codes:
        params["columns"] = product.codes.layout.columns
        b = _matrices(right.tensor, 2, product.batch)
    batches, more = batch_code(Product(a, b))
    finish, inputs, extra = finish_code(product, out.dtype)
    quads = [n for n, side in (("a", left), ("b", right)) if side.kind != "single"]
    together = product.n % 4 == 0 and right.kind in ("packed", "quads", "codes")
    if together and not product.gated:
        quads.append("y")
    group = lane_tiles.workgroup(count)
    code = _lane_code(
        rows,
        count,
        left.kind,
        right.kind,
        "y" in quads,
        product.k % 4 != 0,
        bool(product.gated),
    )
    if product.gated:
        code = f"{code}\n{quad_code(product, out.dtype)}"
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
        groups=fold(tiles * count, group),
        workgroup=group,
        consts={"ROWS": rows, "LANES": count, "A_LOADS": -(-rows // count)},
        vec4=quads,
        raw=["a", "b", "bias"],
        code="\n".join([lane_tiles.mapping(count), batches, finish, code]),
    )


def _matrices(x: Tensor, inner: int, batch: tuple[int, ...]) -> Tensor:
    """A packed tensor as if its blocks were matrices, for the batch's strides."""
    keep = x.rank - inner
    view = x.with_view((*x.shape[:keep], 1, 1), (*x.strides[:keep], 1, 1))
    return view.expand((*batch, 1, 1))


@functools.cache
def _lane_code(
    rows: int,
    count: int,
    left: str,
    right: str,
    quad_store: bool,
    ragged: bool,
    gated: bool,
) -> str:
    """The unrolled parts of matmul_lanes for one way of loading each operand."""
    pointers = "a: ptr<function, RowStarts>, b: ptr<function, ColumnStarts>"
    loads = -(-rows // count)
    spread = right in ("depth", "single")  # a lane's columns lie LANES apart
    begin = _begin(rows, count, left, right)
    step = []
    for q in range(loads):
        at = f"(*a)[{q}] + a_at"
        if left == "single":
            parts = ", ".join(f"get_a({at} + {i} * p.a_col)" for i in range(4))
            step.append(f"let a{q} = vec4<f32>({parts});")
        else:
            step.append(f"let a{q} = get_a4(({at}) >> 2u);")
    if right == "depth":
        step += [f"let d{j} = get_b4(((*b)[{j}] + b_at) >> 2u);" for j in range(4)]
    if right == "codes":
        step += [
            "let words = words_at(b_at, (*b)[0]);",
            "let group = (b_at / GROUP) * p.columns + (*b)[0];",
            "let scale = get_s4(group);",
        ]
    for k in range(4):
        step.append(f"let b{k} = {_column_load(right, k)};")
        for i in range(rows):
            value = lane_tiles.shared(f"a{i // count}[{k}]", i % count, count)
            step.append(f"(*c)[{i}] += {value} * b{k};")
    tail = _tail(rows, count, left, right) if ragged else []
    signature = f"({pointers}, a_at: i32, b_at: i32, "
    tile = "c: ptr<function, Tile>)"
    return "\n".join(
        [
            begin,
            function(f"step{signature}{tile}", step),
            function(f"tail{signature}k: i32, {tile}", tail),
            _columns_of(spread),
            _store_row(quad_store, gated),
        ]
    )


def _columns_of(spread: bool) -> str:
    """The four columns of a lane: neighbours, or LANES apart."""
    first, step = ("lane", "LANES") if spread else ("lane * 4", "1")
    body = [
        f"return vec4<i32>(tile_n * 4 * LANES + {first})"
        f" + {step} * vec4<i32>(0, 1, 2, 3);"
    ]
    return function("columns_of(tile_n: i32, lane: i32) -> vec4<i32>", body)


def _begin(rows: int, count: int, left: str, right: str) -> str:
    loads = -(-rows // count)
    body = ["let a_base = a_matrix(batch);", "let b_base = b_matrix(batch);"]
    for q in range(loads):
        row = f"min(lane, {rows - 1})" if count > rows else f"lane + {q * count}"
        if left == "packed":
            place = f"tile_m * p.a_block + ({row}) * 4"
        else:
            place = f"min(tile_m * ROWS + {row}, p.m - 1) * p.a_row"
        body.append(f"(*a)[{q}] = a_base + {place};")
    if right == "packed":
        column = "tile_n * 4 * LANES + lane * 4"
        body += [
            f"let column = {column};",
            f"(*b)[0] = b_base + (column / {COLUMNS}) * p.b_block"
            f" + column % {COLUMNS};",
        ]
    elif right == "codes":
        body.append("(*b)[0] = min(tile_n * LANES + lane, p.columns - 1);")
    elif right == "quads":
        column = "min(tile_n * 4 * LANES + lane * 4, p.n - 4)"
        body.append(f"(*b)[0] = b_base + {column};")
    else:
        for j in range(4):
            column = f"min(tile_n * 4 * LANES + lane + {j} * LANES, p.n - 1)"
            body.append(f"(*b)[{j}] = b_base + {column} * p.b_col;")
    return function(
        "begin(batch: i32, tile_m: i32, tile_n: i32, lane: i32,"
        " a: ptr<function, RowStarts>, b: ptr<function, ColumnStarts>)",
        body,
    )


def _column_load(right: str, k: int | str) -> str:
    """Four columns of B at one k of the step."""
    if right == "codes":
        return f"numbers(words >> vec4<u32>({8 * int(k)}u), group, scale)"
    if right == "depth":
        return f"vec4<f32>({', '.join(f'd{j}[{k}]' for j in range(4))})"
    if right == "single":
        loads = (f"get_b((*b)[{j}] + b_at + {k} * p.b_row)" for j in range(4))
        return f"vec4<f32>({', '.join(loads)})"
    return f"get_b4(((*b)[0] + b_at + {k} * p.b_row) >> 2u)"


def _numbers_code(codes: Codes) -> str:
    """words_at: those of four k, and numbers: what one k's codes in them stand for."""
    layout = codes.layout
    part = f"u32((k / 4) % {layout.per_word // 4}) * 4u"
    word = f"(k / {layout.per_word}) * p.columns + column"
    low = "vec4<f32>(words & vec4<u32>(15u)) - 8.0"
    if layout.bits == 8:
        low = "vec4<f32>(bitcast<vec4<i32>>(words << vec4<u32>(24u)) >> vec4<u32>(24u))"
    value = f"({low}) * scale"
    if codes.offsets is not None:
        # An offset belongs to the code as it is stored.
        value = f"{value.replace(' - 8.0', '')} + get_o4(group)"
    return "\n".join(
        [
            f"const GROUP = {layout.group};",
            function(
                "words_at(k: i32, column: i32) -> vec4<u32>",
                [
                    f"let at = {word};",
                    f"return bitcast<vec4<u32>>(get_b4(at)) >> vec4<u32>({part});",
                ],
            ),
            function(
                "numbers(words: vec4<u32>, group: i32, scale: vec4<f32>) -> vec4<f32>",
                [f"return {value};"],
            ),
        ]
    )


def _tail(rows: int, count: int, left: str, right: str) -> list[str]:
    """One k, where k is no multiple of four, so that nothing loads four along it."""
    lines = [f"let b0 = {_column_load(right, 'k')};"]
    step = "k" if left == "packed" else "k * p.a_col"
    for q in range(-(-rows // count)):
        lines.append(f"let a{q} = get_a((*a)[{q}] + a_at + {step});")
    for i in range(rows):
        value = lane_tiles.shared(f"a{i // count}", i % count, count)
        lines.append(f"(*c)[{i}] += {value} * b0;")
    return lines


def _store_row(quads: bool, gated: bool) -> str:
    signature = "store_row(batch: i32, row: i32, column: vec4<i32>, v: vec4<f32>)"
    if gated:
        return function(signature, ["put_quad(batch, row, column[0], v);"])
    if quads:
        lanes_ = ", ".join(f"finish(batch, row, column[{j}], v[{j}])" for j in range(4))
        body = [
            f"let r = vec4<f32>({lanes_});",
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
