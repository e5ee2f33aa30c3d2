"""Matrix products: mm, bmm, addmm, linear, matmul and what they consist of.

Enters: operands as strided views, of which constants are packed for their kernel
at load. Leaves: every element of the output written once, after bias and factors.
Sums are f32 for every float type and exact modulo 2^32 for integers.

Three forms, of which measuring may find another one better: `matmul_lanes` for
CPU adapters, a register tile whose rows lanes share; `matmul_tiled` for GPUs,
tiles in workgroup memory; `matmul_vector` for GPUs and few rows, where a
workgroup sums along k.
"""

from __future__ import annotations

import math

import numpy as np

from ..dtypes import DType
from ..graph import Graph, Tensor, fold
from ..kernels import Param
from ..registry import op
from .matmul_lanes import lane_rows, multiply_lanes
from .parts import joined, part, parts
from .product import Product, batch_code, finish_code, quad_code


def multiply(g: Graph, product: Product, out: Tensor) -> None:
    """Plans the product; both operands have the same batch dimensions."""
    if out.numel == 0 or product.k == 0:
        _no_sum(g, product, out)
    elif not product.a.dtype.is_float:
        _tiled(g, product, out)
    else:
        shape = (math.prod(product.batch), product.m, product.n, product.k)
        constant = "a" * product.a.is_constant + "b" * product.b.is_constant
        kernel = f"matmul {constant}" if constant else "matmul"
        kernel = f"gated {kernel}" if product.gated else kernel
        form = g.choose(kernel, shape, _forms(g, product), product.a.dtype)
        _FORMS[form](g, product, out)


def _forms(g: Graph, product: Product) -> list[str]:
    """What could compute the product, the most likely first."""
    rows, source = lane_rows(g, product), product.b.source
    if g.caps.is_cpu:
        if source is not None and math.prod(source.shape) != product.b.numel:
            return ["lanes"]  # a part of a constant, which only this form packs alone
        fewer = {"lanes_half": rows >= 4, "lanes_quarter": rows >= 8, "tiled": True}
        return ["lanes", *(name for name, offered in fewer.items() if offered)]
    if product.m <= 4:
        return ["vector", "tiled", "lanes"]
    return ["tiled", "lanes"]


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
        "elementwise",
        inputs,
        {"y": out},
        params,
        invocations=out.numel,
        strided=["bias"],
        code=code.format(t=kind, v=value),
    )


# -- GPUs ------------------------------------------------------------------------------


def _strides(product: Product) -> dict[str, Param]:
    a, b = product.a, product.b
    return {
        "m": product.m,
        "n": product.n,
        "k": product.k,
        "a_row": a.strides[-2],
        "a_col": a.strides[-1],
        "b_row": b.strides[-2],
        "b_col": b.strides[-1],
    }


def _tiled(g: Graph, product: Product, out: Tensor) -> None:
    tiles_m, tiles_n = -(-product.m // 64), -(-product.n // 64)
    tiles = math.prod(product.batch) * tiles_m * tiles_n
    batches, more = batch_code(product)
    finish, inputs, extra = finish_code(product, out.dtype)
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
        code=f"{batches}\n{finish}\n{quad_code(product, out.dtype)}",
    )


def _vector(g: Graph, product: Product, out: Tensor) -> None:
    along = 16 if product.b.strides[-2] == 1 or product.n == 1 else 1
    workgroup = 64
    tiles_n = -(-product.n // (workgroup // along))
    tiles = math.prod(product.batch) * tiles_n
    batches, more = batch_code(product)
    finish, inputs, extra = finish_code(product, out.dtype)
    g.dispatch(
        "matmul_vector",
        {"a": product.a, "b": product.b, **inputs},
        {"y": out},
        {**_strides(product), "tiles": tiles, "tiles_n": tiles_n, **more, **extra},
        groups=fold(tiles, 1),
        workgroup=workgroup,
        consts={"ALONG": along},
        raw=["a", "b", "bias"],
        code=f"{batches}\n{finish}\n{quad_code(product, out.dtype)}",
    )


_FORMS = {
    "lanes": multiply_lanes,
    "lanes_half": lambda g, product, out: multiply_lanes(g, product, out, 2),
    "lanes_quarter": lambda g, product, out: multiply_lanes(g, product, out, 4),
    "tiled": _tiled,
    "vector": _vector,
}

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
    g.require(
        a.dtype is not DType.INT64,
        "operands must be of a type whose sums 32 bits hold or wrap",
        a.dtype.label,
    )
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    one_b = all(s == 0 or e == 1 for s, e in zip(b.strides[:-2], b.shape[:-2]))
    per_column = bias is None or bias.rank <= 1
    if one_b and per_column and math.prod(lead) == math.prod(a.shape[:-2]):
        # The batch is more rows: fewer, fuller tiles.
        a = g.reshape(a, (math.prod(a.shape[:-1]), a.shape[-1]))
        b = b.with_view(b.shape[-2:], b.strides[-2:])
        lead = ()
    a = a.expand((*lead, *a.shape[-2:]))
    pieces = parts(g, b, -1)
    if len(pieces) == 1:
        if b.source is not None and b.numel < math.prod(b.source.shape):
            b = _columns(g, b, 0, b.shape[-1])
        b = b.expand((*lead, *b.shape[-2:]))
        multiply(g, Product(a, b, bias, alpha, beta), out)
        return
    made = []
    for start, length in pieces:
        few = _columns(g, b, start, length).expand((*lead, b.shape[-2], length))
        added = bias
        if bias is not None and bias.rank and bias.shape[-1] > 1:
            added = bias.slice(-1, start, length)
        made.append(g.temp((*out.shape[:-1], length), out.dtype))
        multiply(g, Product(a, few, added, alpha, beta), made[-1])
    joined(g, made, out)


def _columns(g: Graph, b: Tensor, start: int, length: int) -> Tensor:
    """Columns of a constant: a view where they are packed, else a buffer."""
    if g.caps.is_cpu and b.dtype.is_float:
        return b.slice(-1, start, length)
    if b.strides[-2] == 1:
        return part(g, b.transpose(-2, -1), -2, start, length).transpose(-2, -1)
    return part(g, b, -1, start, length)


@op("aten.mm.default", "aten.bmm.default", fusible=True)
def mm(g: Graph, a: Tensor, b: Tensor, *, out: Tensor) -> None:
    product(g, a, b, out)


@op("aten._int_mm.default", fusible=True)
def int_mm(g: Graph, a: Tensor, b: Tensor, *, out: Tensor) -> None:
    """int8 by int8, summed in int32."""
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
