"""Distances between rows: y[i, j] is the p-norm of a[i] - b[j].

Enter the rows of two tensors (`cdist`), or of one, each pair once (`pdist`); leaves a
distance for every pair. The kernel is `wgsl/matmul/distance.wgsl`, the tests are in
`test/ops/test_distance.py`.
"""

from __future__ import annotations

import math
from functools import partial

from ...plan import registry
from ...plan.accuracy import TOLERANT
from ...plan.recorder import Output, Recorder, Tensor

op = partial(registry.op, accuracy=TOLERANT)

# How differences are combined, by p, as the kernel numbers it; any other p is a power.
_KINDS = {0.0: 0, 1.0: 1, 2.0: 2, math.inf: 3}
_POWER = 4


def _distances(
    g: Recorder, a: Tensor, b: Tensor, power: float, pairs: bool, out: Output
) -> None:
    # reject
    g.require(a.dtype.is_float, "x must be of a float type", a.dtype.label)
    # choose: a constant of the kernel, so that no loop asks for it
    kind = _KINDS.get(power, _POWER)
    # dispatch: one invocation for each distance
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
        consts={"PAIRS": pairs, "KIND": kind},
    )


@op("aten._cdist_forward.default", fusible=True, keep=True)
def cdist(
    g: Recorder, a: Tensor, b: Tensor, power: float, mode: int | None, *, out: Output
) -> None:
    batch = out.shape[:-2]
    a, b = (x.expand((*batch, *x.shape[-2:])) for x in (a, b))
    _distances(g, a, b, power, False, out)


@op("aten._pdist_forward.default", fusible=True, keep=True)
def pdist(g: Recorder, x: Tensor, power: float, *, out: Output) -> None:
    pairs = math.comb(x.shape[-2], 2)
    g.require(out.numel == pairs, f"there must be {pairs} pairs", out.numel)
    _distances(g, x, x, power, True, out)
