"""Softmax and its logarithm along any dimension.

The maximum is subtracted first, so that nothing overflows; a row of -inf gives
NaN, as in torch.
"""

from __future__ import annotations

import math
from functools import partial

from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import TOLERANT
from ...plan.recorder import Output, Recorder, Tensor
from . import workgroup_reduction

op = partial(registry.op, accuracy=TOLERANT)

# So many exponentials of a long row are summed apart, which keeps the total accurate.
_BLOCK = 64


def _softmax(g: Recorder, x: Tensor, dim: int, log: bool, out: Output) -> None:
    g.require(x.dtype.is_float, "softmax must be of floats", x.dtype.label)
    dim = x.dim(dim)
    count = x.shape[dim] if x.rank else 1
    inner = math.prod(x.shape[dim + 1 :])
    rows = x.numel // max(count, 1)
    params = {"count": count, "inner": inner}
    # Short rows, and many rows whose elements are interleaved, need no workgroup each.
    serial = g.caps.is_cpu or count <= 16 or (inner >= 64 and rows >= 4096)
    forms = workgroup_reduction.forms(g.caps)
    forms = ["serial", *forms] if serial else [*forms, "serial"]
    form = g.choose("softmax", (rows, count, inner), forms, x.dtype)
    if form == "serial":
        g.dispatch(
            "softmax_serial",
            {"x": x},
            {"y": out},
            {**params, "block": min(count, _BLOCK) * inner},
            invocations=rows,
            consts={"LOG": log},
            workgroup=8 if g.caps.is_cpu else 64,
        )
        return
    g.dispatch(
        "softmax_workgroup",
        {"x": x},
        {"y": out},
        params,
        workgroups=rows,
        consts={"LOG": log},
        workgroup=64 if count <= 512 else 256,
        code=workgroup_reduction.across(
            form,
            [
                ("row_max", workgroup_reduction.MAX_NAN),
                ("row_sum", workgroup_reduction.SUM),
            ],
        ),
    )


@op("aten._softmax.default", fusible=True, lazy=3)
def softmax(
    g: Recorder, x: Tensor, dim: int, half_to_float: bool, *, out: Output
) -> None:
    _softmax(g, x, dim, False, out)


@op("aten._log_softmax.default", fusible=True, lazy=3)
def log_softmax(
    g: Recorder, x: Tensor, dim: int, half_to_float: bool, *, out: Output
) -> None:
    _softmax(g, x, dim, True, out)


@op("aten.softmax.int", fusible=True, lazy=3)
def softmax_int(
    g: Recorder, x: Tensor, dim: int, dtype: DType | None, *, out: Output
) -> None:
    _softmax(g, x, dim, False, out)


@op("aten.log_softmax.int", fusible=True, lazy=3)
def log_softmax_int(
    g: Recorder, x: Tensor, dim: int, dtype: DType | None, *, out: Output
) -> None:
    _softmax(g, x, dim, True, out)
