"""Two linear layers of one input whose results are combined: act(x @ G) * (x @ U).

The rows of both weights alternate in pairs (g0 g1 u0 u1 g2 g3 u2 u3 ...): any kernel
holds the sums of four neighbouring columns in one vector, and these are all that two
elements of the result need. `export/passes/fusion/merge_gated.py` makes these calls.
The epilogue, to which the two sums are Local(-1) and Local(-2), combines them.
"""

from __future__ import annotations

from functools import partial

from ...plan import registry
from ...plan.accuracy import TOLERANT
from ...plan.recorder import Output, Recorder, Tensor
from .matmul import multiply
from .product import Product
from .split_constants import parts

op = partial(registry.op, accuracy=TOLERANT)


def require_one_part(g: Recorder, weight: Tensor, dim: int) -> None:
    """The results of parts are concatenated, for which the epilogue would be too early:
    a gated product always has one."""
    count = len(parts(g, weight, dim))
    g.require(count == 1, "the weights must fit one binding", f"{count} parts")


@op("webgpu.gated_linear", gated=True)
def gated_linear(
    g: Recorder, x: Tensor, weight: Tensor, bias: Tensor | None, *, out: Output
) -> None:
    require_one_part(g, weight, 0)
    depth = weight.shape[1]
    rows = g.reshape(x, (out.numel // max(out.shape[-1], 1), depth))
    product = Product(rows, weight.transpose(0, 1), bias, gated=out.shape[-1])
    multiply(g, product, out)
