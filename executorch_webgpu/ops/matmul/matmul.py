"""Matrix products: mm, bmm, addmm, linear, matmul, grouped_mm.

Enters: operands as strided views, of which constants are packed for their kernel
at load. Leaves: every element of the output written once, after bias and factors.
Sums are f32 for every float type and exact modulo 2^32 for integers.

Three forms, among which autotune may choose otherwise: `matmul_lanes` for CPU adapters,
a register tile whose rows lanes share; `matmul_tiled` for GPUs, tiles in workgroup
memory, of several sizes (gpu_tiles.py); `matmul_vector` for GPUs and few rows, where a
workgroup sums along k.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import SUM
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.tensor import broadcast
from ...plan.wgsl_text import Param
from .gpu_tiles import BY_NAME, Tile, tiles_for
from .matmul_lanes import lane_rows, multiply_lanes
from .matmul_vector import FEW, VECTORS, multiply_vector, vectors_for
from .operand_loads import load_a, load_b
from .product import (
    Product,
    batch_code,
    finish_code,
    quad_code,
    stores_quads,
    stride_params,
)
from .split_constants import joined, part, parts
from .tile_text import TileText, element

op = partial(registry.op, accuracy=SUM)

# Both are held as i32, so that they can be multiplied with each other.
_BYTES = {DType.INT8, DType.UINT8}


def multiply(g: Recorder, product: Product, out: Output) -> None:
    """Chooses a form and dispatches it; the operands have equal batch dimensions."""
    if out.numel == 0 or product.k == 0:
        _no_sum(g, product, out)
    else:
        shape = (math.prod(product.batch), product.m, product.n, product.k)
        constant = "a" * product.a.is_constant + "b" * product.b.is_constant
        kernel = f"matmul {constant}" if constant else "matmul"
        kernel = f"gated {kernel}" if product.gated else kernel
        kernel = f"grouped {kernel}" if product.groups is not None else kernel
        form = g.choose(kernel, shape, _forms(g, product), product.a.dtype)
        _run(g, form, product, out)


def _forms(g: Recorder, product: Product) -> list[str]:
    """The forms that can compute the product, the most likely first."""
    if product.groups is not None:
        return ["lanes"] if g.caps.is_cpu else [*vectors_for(g.caps, product), "lanes"]
    batch = math.prod(product.batch)
    shape = (product.m, product.n, product.k)
    tiles = tiles_for(g.caps, batch, shape, element(g.caps, product.a))
    if not product.a.dtype.is_float:
        return tiles
    if g.caps.is_cpu:
        rows, source = lane_rows(g, product), product.b.source
        is_slice = source is not None and math.prod(source.shape) != product.b.numel
        if is_slice and g.caps.packs:
            return ["lanes"]  # a slice of a constant, which only this form packs
        fewer = {"lanes_half": rows >= 4, "lanes_quarter": rows >= 8}
        return ["lanes", *(name for name, offered in fewer.items() if offered), *tiles]
    if product.m <= FEW:
        return [*vectors_for(g.caps, product), *tiles, "lanes"]
    return [*tiles, "lanes"]


def _run(g: Recorder, form: str, product: Product, out: Output) -> None:
    if form in BY_NAME:
        _tiled(g, product, out, BY_NAME[form])
    elif form in VECTORS:
        multiply_vector(g, product, out, VECTORS[form])
    else:
        split = {"lanes": 1, "lanes_half": 2, "lanes_quarter": 4}[form]
        multiply_lanes(g, product, out, split)


def _no_sum(g: Recorder, product: Product, out: Output) -> None:
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
        "elementwise",
        inputs,
        {"y": out},
        params,
        invocations=out.numel,
        strided=["bias"],
        code=code.format(t=kind, v=value),
    )


# -- GPUs ------------------------------------------------------------------------------


def _tiled(g: Recorder, product: Product, out: Output, tile: Tile) -> None:
    batches, more = batch_code(product)
    finish, inputs, extra = finish_code(product, out.dtype)
    a, b = load_a(product.a), load_b(product.b)
    fours = [load.name for load in (a, b) if load.vec4]
    is_whole = stores_quads(product, out)
    text = TileText(tile, element(g.caps, product.a), product.k, a, b)
    g.dispatch(
        "matmul_tiled",
        {"a": product.a, "b": product.b, **inputs},
        {"y": out},
        {**stride_params(product), **tile.grid(product.m, product.n), **more, **extra},
        workgroups=tile.count(math.prod(product.batch), product.m, product.n),
        workgroup=tile.invocations,
        consts=text.consts,
        raw=["a", "b", "bias"],
        vec4=[*fours, *(["y"] if is_whole else [])],
        code="\n".join(
            [
                batches,
                finish,
                quad_code(product.gated, out.dtype, is_whole),
                text.code,
            ]
        ),
    )


# -- ops -------------------------------------------------------------------------------


def product(
    g: Recorder,
    a: Tensor,
    b: Tensor,
    out: Output,
    bias: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> None:
    """a @ b for operands of two or more dimensions, batches broadcast."""
    one_type = a.dtype is b.dtype or {a.dtype, b.dtype} <= _BYTES
    g.require(one_type, "operands must have one type", (a.dtype, b.dtype))
    g.require(
        a.dtype is not DType.INT64,
        "operands must be of a type whose sums 32 bits hold or wrap",
        a.dtype.label,
    )
    g.require(
        a.rank > 1 and b.rank > 1 and a.shape[-1] == b.shape[-2],
        "operands must be matrices that share a size",
        (list(a.shape), list(b.shape)),
    )
    lead = broadcast(a.shape[:-2], b.shape[:-2])
    made = (*lead, a.shape[-2], b.shape[-1])
    g.require(
        math.prod(made) == out.numel, f"a product must be {list(made)}", out.shape
    )
    one_b = all(s == 0 or e == 1 for s, e in zip(b.strides[:-2], b.shape[:-2]))
    per_column = bias is None or bias.rank <= 1
    if one_b and per_column and math.prod(lead) == math.prod(a.shape[:-2]):
        # The batch is more rows: fewer, fuller tiles.
        a = g.reshape(a, (math.prod(a.shape[:-1]), a.shape[-1]))
        b = b.with_view(b.shape[-2:], b.strides[-2:])
        lead = ()
    a = a.expand((*lead, *a.shape[-2:]))
    _in_parts(g, Product(a, b, bias, alpha, beta), out)


def _in_parts(g: Recorder, whole: Product, out: Output) -> None:
    """The product with b, not yet broadcast to the batch, in parts if need be."""

    def batched(b: Tensor) -> Tensor:
        grouped = whole.groups is not None
        return b if grouped else b.expand((*whole.batch, *b.shape[-2:]))

    b, bias = whole.b, whole.bias
    pieces = parts(g, b, -1)
    if len(pieces) == 1:
        if b.source is not None and b.numel < math.prod(b.source.shape):
            b = _columns(g, b, 0, b.shape[-1])
        multiply(g, replace(whole, b=batched(b)), out)
        return
    made = []
    for start, length in pieces:
        few = batched(_columns(g, b, start, length))
        added = bias
        if bias is not None and bias.rank and bias.shape[-1] > 1:
            added = bias.slice(-1, start, length)
        made.append(g.output((*out.shape[:-1], length), out.dtype))
        multiply(g, replace(whole, b=few, bias=added), made[-1])
    joined(g, [piece.tensor for piece in made], out)


def _columns(g: Recorder, b: Tensor, start: int, length: int) -> Tensor:
    """Columns of a constant: a view where the kernel packs them, else a buffer."""
    if g.caps.is_cpu and g.caps.packs and b.dtype.is_float:
        return b.slice(-1, start, length)
    if b.strides[-2] == 1:
        return part(g, b.transpose(-2, -1), -2, start, length).transpose(-2, -1)
    return part(g, b, -1, start, length)


@op("aten.mm.default", "aten.bmm.default", fusible=True)
def mm(g: Recorder, a: Tensor, b: Tensor, *, out: Output) -> None:
    product(g, a, b, out)


@op("aten._int_mm.default", twin=True, fusible=True)
def int_mm(g: Recorder, a: Tensor, b: Tensor, *, out: Output) -> None:
    """int8 or uint8 by int8, summed in int32."""
    product(g, a, b, out)


@op("aten.matmul.default", fusible=True, keep=True)
def matmul(g: Recorder, a: Tensor, b: Tensor, *, out: Output) -> None:
    a = a.unsqueeze(0) if a.rank == 1 else a
    b = b.unsqueeze(1) if b.rank == 1 else b
    product(g, a, b, out)


@op("aten.mv.default", "aten.dot.default", fusible=True)
def mv(g: Recorder, a: Tensor, b: Tensor, *, out: Output) -> None:
    matmul(g, a, b, out=out)


@op("aten.addmm.default", "aten.baddbmm.default", fusible=True)
def addmm(
    g: Recorder,
    bias: Tensor,
    a: Tensor,
    b: Tensor,
    beta: float = 1,
    alpha: float = 1,
    *,
    out: Output,
) -> None:
    # A factor of 0 drops the bias, whatever it holds, as in torch.
    product(g, a, b, out, bias if beta != 0 else None, alpha, beta)


@op("aten.linear.default", fusible=True, keep=True)
def linear(
    g: Recorder, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Output
) -> None:
    x = x.unsqueeze(0) if x.rank == 1 else x
    weight = weight.unsqueeze(0) if weight.rank == 1 else weight
    product(g, x, weight.transpose(0, 1), out, bias)


@op(
    "aten._grouped_mm.default",
    "transformers.grouped_mm_fallback.default",
    fusible=True,
    keep=True,
)
def grouped_mm(
    g: Recorder,
    a: Tensor,
    b: Tensor,
    ends: Tensor | None,
    bias: Tensor | None = None,
    out_dtype: DType | None = None,
    *,
    out: Output,
) -> None:
    """Rows of `a`, group by group, each times the matrix of its group.

    Every row is a batch of one that searches `ends` for its group, so the work is that
    of one product, however the rows are divided among groups. Rows behind the last
    group give zeros.
    """
    if ends is None and a.rank == b.rank == 3:
        product(g, a, b, out)
        return
    ranks = (a.rank, b.rank)
    g.require(ranks == (2, 3), "groups must be of rows: a 2-d, b 3-d", ranks)
    g.require(ends is not None, "groups must have ends", None)
    g.require(bias is None, "bias must be None", "a tensor")
    g.require(a.dtype is b.dtype, "operands must have one type", (a.dtype, b.dtype))
    g.require(a.dtype.is_float, "operands must be floats", a.dtype.label)
    g.require(b.shape[0] > 0, "there must be a group", b.shape[0])
    _in_parts(g, Product(a.unsqueeze(1), b, groups=ends), out)
