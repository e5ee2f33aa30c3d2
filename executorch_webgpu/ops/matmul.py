"""Matrix products: mm, bmm, addmm, linear, matmul and what they consist of.

Enters: operands as strided views, of which constants are packed for their kernel
at load. Leaves: every element of the output written once, after bias and factors.
Sums are f32 for every float type and exact modulo 2^32 for integers.

Three forms: `matmul_lanes` for CPU adapters, a register tile whose rows lanes
share; `matmul_tiled` for GPUs, tiles in workgroup memory; `matmul_vector` for
GPUs and few rows, where a workgroup sums along k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..dtypes import DType
from ..graph import Graph, Tensor, fold
from ..kernels import Param
from ..packing import packing
from ..registry import op
from ..tensor import collapse
from . import lanes as lane_tiles

_COLUMNS = 32  # of a packed block of B


@dataclass
class Product:
    """a[batch, m, k] x b[batch, k, n], scaled, plus bias[m, n], scaled."""

    a: Tensor
    b: Tensor
    bias: Tensor | None = None
    alpha: float = 1.0
    beta: float = 1.0
    row_scale: Tensor | None = None  # [batch * m] factors of the rows of the result
    first_row: int = 0  # where the result's rows go among `rows` of the output
    rows: int = 0  # 0: as many as a has

    @property
    def m(self) -> int:
        return self.a.shape[-2]

    @property
    def k(self) -> int:
        return self.a.shape[-1]

    @property
    def n(self) -> int:
        return self.b.shape[-1]

    @property
    def batch(self) -> tuple[int, ...]:
        return self.a.shape[:-2]


def multiply(g: Graph, product: Product, out: Tensor) -> None:
    """Plans the product; both operands have the same batch dimensions."""
    a, b = product.a, product.b
    if out.numel == 0 or product.k == 0:
        _no_sum(g, product, out)
    elif not a.dtype.is_float:
        _tiled(g, product, out)
    elif g.caps.is_cpu:
        _lanes(g, product, out)
    elif product.m <= 4:
        _vector(g, product, out)
    else:
        _tiled(g, product, out)


def _no_sum(g: Graph, product: Product, out: Tensor) -> None:
    """The product of empty operands: zero, or the scaled bias."""
    code = "fn program(i: i32) -> {t} {{ return {v}; }}"
    kind = "f32" if out.dtype.is_float else "i32"
    inputs: dict[str, Tensor] = {}
    params: dict[str, Param] = {}
    value = f"{kind}(0)"
    if product.bias is not None:
        inputs["bias"] = product.bias.expand((*product.batch, product.m, product.n))
        params["beta"] = float(product.beta)
        value = f"{kind}(p.beta * f32(get_bias(i)))"
    g.dispatch(
        "elementwise", inputs, {"y": out}, params, invocations=out.numel,
        strided=["bias"], code=code.format(t=kind, v=value),
    )


# -- what all forms share --------------------------------------------------------------


def _batch_params(product: Product) -> tuple[str, dict[str, Param]]:
    """a_batch and b_batch: where a batch's matrices start."""
    a, b = product.a, product.b
    walked = [a.strides[:-2], b.strides[:-2]]
    layout = collapse(product.batch, walked)
    params: dict[str, Param] = {"a_offset": a.offset, "b_offset": b.offset}
    lines = {"a": "p.a_offset", "b": "p.b_offset"}
    code = []
    rank = len(layout.shape)
    if layout.shape != (1,):
        params["batch_shape"] = layout.shape
        params["a_batch"], params["b_batch"] = layout.strides
        for name in "ab":
            body = ["var rest = batch;", f"var at = {lines[name]};"]
            for dim in range(rank - 1, 0, -1):
                body += [
                    f"let next{dim} = rest / batch_shape_at({dim});",
                    f"at += (rest - next{dim} * batch_shape_at({dim}))"
                    f" * {name}_batch_at({dim});",
                    f"rest = next{dim};",
                ]
            body.append(f"return at + rest * {name}_batch_at(0);")
            code.append(_function(f"{name}_matrix(batch: i32) -> i32", body))
    else:
        for name in "ab":
            body = [f"return {lines[name]};"]
            code.append(_function(f"{name}_matrix(batch: i32) -> i32", body))
    return "\n".join(code), params


def _function(signature: str, body: Sequence[str]) -> str:
    return "\n  ".join([f"fn {signature} {{", *body]) + "\n}"


def _finish(
    product: Product, dtype: DType
) -> tuple[str, dict[str, Tensor], dict[str, Param]]:
    """finish(batch, row, column, sum): the result after factors and bias."""
    inputs: dict[str, Tensor] = {}
    params: dict[str, Param] = {}
    params["y_rows"] = product.rows or product.m
    params["y_first"] = product.first_row
    kind = "f32" if dtype.is_float else "i32"
    number = float if dtype.is_float else int
    value = "v"
    if product.row_scale is not None:
        inputs["factor"] = product.row_scale
        value = "v * get_factor(batch * p.m + row)"
    if product.alpha != 1:
        params["alpha"] = number(product.alpha)
        value = f"p.alpha * {value}"
    bias = product.bias
    if bias is not None and product.beta != 0:
        full = bias.expand((*product.batch, product.m, product.n))
        batch = collapse(full.shape[:-2], [full.strides[:-2]])
        inputs["bias"] = bias
        params["bias_at"] = (full.offset, full.strides[-2], full.strides[-1])
        where = "bias_at_at(0) + row * bias_at_at(1) + column * bias_at_at(2)"
        rest = "batch"
        if batch.shape != (1,) and any(batch.strides[0]):
            params["bias_shape"] = batch.shape
            params["bias_batch"] = batch.strides[0]
            for dim in range(len(batch.shape) - 1, -1, -1):
                extent, step = f"bias_shape_at({dim})", f"bias_batch_at({dim})"
                inner = f"({rest}) % {extent}" if dim else f"({rest})"
                where += f" + ({inner}) * {step}"
                rest = f"({rest}) / {extent}"
        term = f"get_bias({where})"
        if product.beta != 1:
            params["beta"] = number(product.beta)
            term = f"p.beta * {term}"
        value = f"{value} + {term}"
    signature = f"finish(batch: i32, row: i32, column: i32, v: {kind}) -> {kind}"
    place = ["return (batch * p.y_rows + p.y_first + row) * p.n;"]
    code = _function("y_at(batch: i32, row: i32) -> i32", place)
    return f"{code}\n{_function(signature, [f'return {value};'])}", inputs, params


# -- CPU adapters ----------------------------------------------------------------------


@packing("matmul_columns")
def pack_columns(data: np.ndarray) -> np.ndarray:
    """[..., K, N] as blocks of 32 columns, each a run of K rows; zeros fill up."""
    *batch, depth, columns = data.shape
    blocks = -(-columns // _COLUMNS)
    padded = np.zeros((*batch, depth, blocks * _COLUMNS), data.dtype)
    padded[..., :columns] = data
    split = padded.reshape(*batch, depth, blocks, _COLUMNS)
    return np.ascontiguousarray(np.swapaxes(split, -3, -2))


@packing("matmul_rows")
def pack_rows(data: np.ndarray, rows: int) -> np.ndarray:
    """[..., M, K] as blocks of `rows` rows: [M/rows, K/4, rows, 4]; zeros fill up."""
    *batch, height, depth = data.shape
    blocks, quads = -(-height // rows), -(-depth // 4)
    padded = np.zeros((*batch, blocks * rows, quads * 4), data.dtype)
    padded[..., :height, :depth] = data
    split = padded.reshape(*batch, blocks, rows, quads, 4)
    return np.ascontiguousarray(np.swapaxes(split, -3, -2))


@dataclass
class _Side:
    """How one operand is loaded: its tensor, and whether four at a time."""

    tensor: Tensor
    kind: str  # packed, quads (vec4 in the loop's or the lanes' direction) or single
    step: int  # elements per four k


def _aligned(x: Tensor, unit: int, *others: int) -> bool:
    """Whether vec4 loads along the dimension of stride `unit` are possible."""
    strides = [s for s, e in zip(x.strides, x.shape) if e != 1]
    rest = list(strides)
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


def _columns_side(g: Graph, product: Product) -> _Side:
    b = product.b
    if b.is_constant and b.numel:
        blocks = -(-product.n // _COLUMNS)
        once = _once(b)
        shape = (*once.shape[:-2], blocks, product.k, _COLUMNS)
        packed = g.prepack(once, "matmul_columns", shape)
        return _Side(packed, "packed", 4 * _COLUMNS)
    *lead, k, n = b.shape
    if n % _COLUMNS == 0 and _worth_packing(product.m, k, n):
        view = g.reshape(b, (*lead, k, n // _COLUMNS, _COLUMNS)).transpose(-3, -2)
        return _Side(g.contiguous(view), "packed", 4 * _COLUMNS)
    if product.n % 4 == 0 and _aligned(b, b.strides[-1]):
        return _Side(b, "quads", 4 * b.strides[-2])
    if product.k % 4 == 0 and _aligned(b, b.strides[-2]):
        return _Side(b, "depth", 4)
    return _Side(b, "single", 4 * b.strides[-2])


def _tile_rows(m: int, count: int) -> int:
    """Rows of a tile: as many as registers hold, not many more than there are."""
    most = 16 if count > 1 else 8
    return min(most, 1 << max(0, m - 1).bit_length())


def _lanes(g: Graph, product: Product, out: Tensor) -> None:
    count = lane_tiles.lanes(g.caps)
    rows = _tile_rows(product.m, count)
    left, right = _rows_side(g, product, rows), _columns_side(g, product)
    a, b = product.a, product.b
    batch = math.prod(product.batch)
    tiles_m, tiles_n = -(-product.m // rows), -(-product.n // (4 * count))
    tiles = batch * tiles_m * tiles_n
    params: dict[str, Param] = {
        "m": product.m, "n": product.n, "k": product.k, "tiles": tiles,
        "tiles_m": tiles_m, "tiles_n": tiles_n,
        "a_step": left.step, "b_step": right.step,
        "a_row": a.strides[-2], "a_col": a.strides[-1],
        "b_row": b.strides[-2], "b_col": b.strides[-1],
    }
    if left.kind == "packed":
        params["a_block"] = math.prod(left.tensor.shape[-3:])
        a = _matrices(left.tensor, 4, product.batch)
    if right.kind == "packed":
        params["b_block"] = math.prod(right.tensor.shape[-2:])
        params["b_row"] = _COLUMNS
        b = _matrices(right.tensor, 3, product.batch)
    batches, more = _batch_params(Product(a, b))
    finish, inputs, extra = _finish(product, out.dtype)
    quads = [n for n, side in (("a", left), ("b", right)) if side.kind != "single"]
    if product.n % 4 == 0 and right.kind in ("packed", "quads"):
        quads.append("y")
    group = lane_tiles.workgroup(count)
    code = _lane_code(rows, count, left.kind, right.kind, "y" in quads)
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


def _lane_code(rows: int, count: int, left: str, right: str, quad_store: bool) -> str:
    """The unrolled parts of matmul_lanes for one way of loading each operand."""
    pointers = (
        "a: ptr<function, RowStarts>, b: ptr<function, ColumnStarts>"
    )
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
    for k in range(4):
        step.append(f"let b{k} = {_column_load(right, k)};")
        for i in range(rows):
            value = lane_tiles.shared(f"a{i // count}[{k}]", i % count, count)
            step.append(f"(*c)[{i}] += {value} * b{k};")
    tail = _tail(rows, count, left, right)
    signature = f"({pointers}, a_at: i32, b_at: i32, "
    tile = "c: ptr<function, Tile>)"
    return "\n".join(
        [
            begin,
            _function(f"step{signature}{tile}", step),
            _function(f"tail{signature}k: i32, {tile}", tail),
            _columns_of(spread),
            _store_row(quad_store),
        ]
    )


def _columns_of(spread: bool) -> str:
    """The four columns of a lane: neighbours, or LANES apart."""
    first, step = ("lane", "LANES") if spread else ("lane * 4", "1")
    body = [
        f"return vec4<i32>(tile_n * 4 * LANES + {first})"
        f" + {step} * vec4<i32>(0, 1, 2, 3);"
    ]
    return _function("columns_of(tile_n: i32, lane: i32) -> vec4<i32>", body)


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
            f"(*b)[0] = b_base + (column / {_COLUMNS}) * p.b_block"
            f" + column % {_COLUMNS};",
        ]
    elif right == "quads":
        column = "min(tile_n * 4 * LANES + lane * 4, p.n - 4)"
        body.append(f"(*b)[0] = b_base + {column};")
    else:
        for j in range(4):
            column = f"min(tile_n * 4 * LANES + lane + {j} * LANES, p.n - 1)"
            body.append(f"(*b)[{j}] = b_base + {column} * p.b_col;")
    return _function(
        "begin(batch: i32, tile_m: i32, tile_n: i32, lane: i32,"
        " a: ptr<function, RowStarts>, b: ptr<function, ColumnStarts>)",
        body,
    )


def _column_load(right: str, k: int | str) -> str:
    """Four columns of B at one k of the step."""
    if right == "depth":
        return f"vec4<f32>({', '.join(f'd{j}[{k}]' for j in range(4))})"
    if right == "single":
        loads = (f"get_b((*b)[{j}] + b_at + {k} * p.b_row)" for j in range(4))
        return f"vec4<f32>({', '.join(loads)})"
    return f"get_b4(((*b)[0] + b_at + {k} * p.b_row) >> 2u)"


def _tail(rows: int, count: int, left: str, right: str) -> list[str]:
    """One k: only where k is no multiple of four, which excludes some loads."""
    if left == "quads" or right == "depth":
        return []
    lines = [f"let b0 = {_column_load(right, 'k')};"]
    step = "k" if left == "packed" else "k * p.a_col"
    for q in range(-(-rows // count)):
        lines.append(f"let a{q} = get_a((*a)[{q}] + a_at + {step});")
    for i in range(rows):
        value = lane_tiles.shared(f"a{i // count}", i % count, count)
        lines.append(f"(*c)[{i}] += {value} * b0;")
    return lines


def _store_row(quads: bool) -> str:
    signature = (
        "store_row(batch: i32, row: i32, column: vec4<i32>, v: vec4<f32>)"
    )
    if quads:
        lanes_ = ", ".join(f"finish(batch, row, column[{j}], v[{j}])" for j in range(4))
        body = [
            f"let r = vec4<f32>({lanes_});",
            "if (column[0] < p.n)"
            " { put_y4((y_at(batch, row) + column[0]) >> 2u, r); }",
        ]
        return _function(signature, body)
    body = []
    for j in range(4):
        body.append(
            f"if (column[{j}] < p.n) {{ put_y(y_at(batch, row) + column[{j}],"
            f" finish(batch, row, column[{j}], v[{j}])); }}"
        )
    return _function(signature, body)


# -- GPUs ------------------------------------------------------------------------------


def _strides(product: Product) -> dict[str, Param]:
    a, b = product.a, product.b
    return {
        "m": product.m, "n": product.n, "k": product.k,
        "a_row": a.strides[-2], "a_col": a.strides[-1],
        "b_row": b.strides[-2], "b_col": b.strides[-1],
    }


def _tiled(g: Graph, product: Product, out: Tensor) -> None:
    tiles_m, tiles_n = -(-product.m // 64), -(-product.n // 64)
    tiles = math.prod(product.batch) * tiles_m * tiles_n
    batches, more = _batch_params(product)
    finish, inputs, extra = _finish(product, out.dtype)
    grid: dict[str, Param] = {"tiles": tiles, "tiles_m": tiles_m, "tiles_n": tiles_n}
    g.dispatch(
        "matmul_tiled",
        {"a": product.a, "b": product.b, **inputs},
        {"y": out},
        {**_strides(product), **grid, **more, **extra},
        groups=fold(tiles, 1),
        workgroup=256,
        types={"E": "f32" if out.dtype.is_float else "i32"},
        raw=["a", "b", "bias"],
        code=f"{batches}\n{finish}",
    )


def _vector(g: Graph, product: Product, out: Tensor) -> None:
    along = 16 if product.b.strides[-2] == 1 or product.n == 1 else 1
    workgroup = 64
    tiles_n = -(-product.n // (workgroup // along))
    tiles = math.prod(product.batch) * tiles_n
    batches, more = _batch_params(product)
    finish, inputs, extra = _finish(product, out.dtype)
    g.dispatch(
        "matmul_vector",
        {"a": product.a, "b": product.b, **inputs},
        {"y": out},
        {**_strides(product), "tiles": tiles, "tiles_n": tiles_n, **more, **extra},
        groups=fold(tiles, 1),
        workgroup=workgroup,
        consts={"ALONG": along},
        raw=["a", "b", "bias"],
        code=f"{batches}\n{finish}",
    )


# -- ops -------------------------------------------------------------------------------


def product(
    g: Graph,
    a: Tensor,
    b: Tensor,
    out: Tensor,
    bias: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> None:
    """a @ b for operands of two or more dimensions, batches broadcast."""
    g.require(a.dtype is b.dtype, "operands must have one type", (a.dtype, b.dtype))
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    one_b = all(s == 0 or e == 1 for s, e in zip(b.strides[:-2], b.shape[:-2]))
    per_column = bias is None or bias.rank <= 1
    if one_b and per_column and math.prod(lead) == math.prod(a.shape[:-2]):
        # The batch is more rows: fewer, fuller tiles.
        a = g.reshape(a, (math.prod(a.shape[:-1]), a.shape[-1]))
        b = b.with_view(b.shape[-2:], b.strides[-2:])
        lead = ()
    a = a.expand((*lead, *a.shape[-2:]))
    b = b.expand((*lead, *b.shape[-2:]))
    multiply(g, Product(a, b, bias, alpha, beta), out)


@op("aten.mm.default", "aten.bmm.default", fusible=True)
def mm(g: Graph, a: Tensor, b: Tensor, *, out: Tensor) -> None:
    product(g, a, b, out)


@op("aten.matmul.default", fusible=True, keep=True)
def matmul(g: Graph, a: Tensor, b: Tensor, *, out: Tensor) -> None:
    a = a.unsqueeze(0) if a.rank == 1 else a
    b = b.unsqueeze(1) if b.rank == 1 else b
    product(g, a, b, out)


@op("aten.mv.default", "aten.dot.default", fusible=True)
def mv(g: Graph, a: Tensor, b: Tensor, *, out: Tensor) -> None:
    matmul(g, a, b, out=out)


@op("aten.addmm.default", "aten.baddbmm.default", fusible=True)
def addmm(
    g: Graph,
    bias: Tensor,
    a: Tensor,
    b: Tensor,
    beta: float = 1,
    alpha: float = 1,
    *,
    out: Tensor,
) -> None:
    # A factor of 0 drops the bias, whatever it holds, as in torch.
    product(g, a, b, out, bias if beta != 0 else None, alpha, beta)


@op("aten.linear.default", fusible=True, keep=True)
def linear(
    g: Graph, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor
) -> None:
    x = x.unsqueeze(0) if x.rank == 1 else x
    weight = weight.unsqueeze(0) if weight.rank == 1 else weight
    product(g, x, weight.transpose(0, 1), out, bias)
