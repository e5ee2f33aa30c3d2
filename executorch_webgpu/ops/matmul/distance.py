"""Distances between rows: every row with every row of another operand or its own."""

from __future__ import annotations

import math

from ...plan.recorder import Output, Recorder, Tensor
from ...plan.registry import op


def _kind(power: float) -> int:
    """How the differences are combined, as `distance.wgsl` numbers it."""
    return {0.0: 0, 1.0: 1, 2.0: 2, math.inf: 3}.get(power, 4)


def _dispatch(
    g: Recorder, a: Tensor, b: Tensor, power: float, pairs: bool, out: Output
) -> None:
    g.require(a.dtype.is_float, "x must be of a float type", a.dtype.label)
    g.dispatch(
        "distance",
        {"a": a, "b": b},
        {"y": out},
        {
            "rows_a": a.shape[-2],
            "rows_b": b.shape[-2],
            "columns": a.shape[-1],
            "power": float(power),
        },
        invocations=out.numel,
        consts={"PAIRS": pairs, "KIND": _kind(power)},
    )


@op("aten._cdist_forward.default", fusible=True, keep=True)
def cdist(
    g: Recorder, a: Tensor, b: Tensor, power: float, mode: int | None, *, out: Output
) -> None:
    batch = out.shape[:-2]
    a = a.expand((*batch, *a.shape[-2:]))
    b = b.expand((*batch, *b.shape[-2:]))
    _dispatch(g, a, b, power, False, out)


@op("aten._pdist_forward.default", fusible=True, keep=True)
def pdist(g: Recorder, x: Tensor, power: float, *, out: Output) -> None:
    _dispatch(g, x, x, power, True, out)
