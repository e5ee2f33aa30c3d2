"""Ops that are matrix products once their operands are seen as matrices.

Enters: addmv, addbmm and bilinear; leaves: one product each, or two.
"""

from __future__ import annotations

import math
from functools import partial

from ...plan import registry
from ...plan.accuracy import SUM
from ...plan.recorder import Output, Recorder, Tensor
from .matmul import product

op = partial(registry.op, accuracy=SUM)


@op("aten.addmv.default", fusible=True, keep=True)
def addmv(
    g: Recorder,
    bias: Tensor,
    a: Tensor,
    x: Tensor,
    beta: float = 1,
    alpha: float = 1,
    *,
    out: Output,
) -> None:
    """The vector as a row, so that a constant matrix is packed as a layer's."""
    added = bias if beta != 0 else None
    product(g, x.unsqueeze(0), a.transpose(0, 1), out, added, alpha, beta)


@op("aten.addbmm.default", fusible=True, keep=True)
def addbmm(
    g: Recorder,
    bias: Tensor,
    a: Tensor,
    b: Tensor,
    beta: float = 1,
    alpha: float = 1,
    *,
    out: Output,
) -> None:
    """The sum over the batch, as more terms along k of one product."""
    batch, rows, terms = a.shape
    wide = g.reshape(a.permute((1, 0, 2)), (rows, batch * terms))
    tall = g.reshape(b, (batch * terms, b.shape[2]))
    product(g, wide, tall, out, bias if beta != 0 else None, alpha, beta)


@op("aten.bilinear.default", fusible=True, keep=True)
def bilinear(
    g: Recorder,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    out: Output,
) -> None:
    """out[n, o] = sum of x[n, i] * weight[o, i, j] * y[n, j], over j first."""
    outputs, first, second = weight.shape
    rows = math.prod(x.shape[:-1])
    layer = g.reshape(weight, (outputs * first, second)).transpose(0, 1)
    half = g.output((rows, outputs * first), x.dtype)
    product(g, g.reshape(y, (rows, second)), layer, half)
    inner = half.tensor.with_view((rows, outputs, first), (outputs * first, first, 1))
    product(g, g.reshape(x, (rows, 1, first)), inner.transpose(1, 2), out, bias)
