"""Dynamic quantization of activations: a scale and a zero point for every row.

One dispatch for what torchao exports as three ops: the choice of a row's scale and
zero point, quantize, and dequantize. The pass `dynamic_quantization` replaces them by
`round_rows`; the pass `integer_matmul` does without it where a product reads the
quantized values, which `round_codes` makes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from ...plan import registry
from ...plan.accuracy import STEP
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.wgsl_text import Param
from ..reduce import workgroup_reduction

op = partial(registry.op, accuracy=STEP)

_JOINS = [
    ("row_low", workgroup_reduction.MIN_NAN),
    ("row_high", workgroup_reduction.MAX_NAN),
]


@op("webgpu.round_rows", fusible=True)
def round_rows(
    g: Recorder,
    x: Tensor,
    length: int,
    low: int,
    high: int,
    eps: float,
    *,
    out: Output,
) -> None:
    """Quantizes and dequantizes `x`, seen as rows of `length` elements."""
    _round(g, "round_rows", x, length, (low, high, eps), {"length": length}, out)


@op("webgpu.round_codes")
def round_codes(
    g: Recorder,
    x: Tensor,
    length: int,
    low: int,
    high: int,
    eps: float,
    *,
    out: Output,
) -> None:
    """The quantized rows: codes, four in a word, then scale and zero point."""
    g.require(length % 4 == 0, "a row must be a multiple of 4", length)
    g.require(low >= -128 and high <= 127, "codes must have 8 bits", (low, high))
    words = {"words": length // 4}
    _round(g, "round_codes", x, length, (low, high, eps), words, out, {"x"})


def _round(
    g: Recorder,
    kernel: str,
    x: Tensor,
    length: int,
    limits: tuple[int, int, float],
    params: Mapping[str, Param],
    out: Output,
    vec4: Collection[str] = (),
) -> None:
    rows = x.numel // max(length, 1)
    # Few rows are as slow as one: it is shared among as many as have work.
    along = 1 if g.caps.is_cpu else 256 if length >= 1024 else 64
    code = workgroup_reduction.alone([name for name, _ in _JOINS])
    if along > 1:
        form = g.choose(
            kernel, (rows, length), workgroup_reduction.forms(g.caps), x.dtype
        )
        code = workgroup_reduction.across(form, _JOINS)
    workgroup = 8 if g.caps.is_cpu else along
    low, high, eps = (float(limit) for limit in limits)
    g.dispatch(
        kernel,
        {"x": x},
        {"y": out},
        {"rows": rows, "low": low, "high": high, "eps": eps, **params},
        workgroups=-(-rows * along // workgroup),
        workgroup=workgroup,
        consts={"ALONG": along},
        vec4=vec4,
        code=code,
    )
