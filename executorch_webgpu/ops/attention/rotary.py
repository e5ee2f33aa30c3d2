"""Rotary position embedding: query and key rotated in one dispatch.

All variants are one kernel: the elements of a pair are adjacent or half a head apart,
and the angles are given for each token or are rows of a table from a position on.
"""

from __future__ import annotations

from functools import partial

from ...plan import registry
from ...plan.accuracy import TOLERANT
from ...plan.positions import Position, position_code
from ...plan.recorder import DataInt, Output, Recorder, Tensor

op = partial(registry.op, accuracy=TOLERANT)

_NO_KEY = """
fn get_k(i: i32) -> f32 { return 0.0; }
fn put_yk(i: i32, v: f32) {}
"""


def rotate(
    g: Recorder,
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    outs: list[Output],
    *,
    interleaved: bool,
    rotated: int,
    seq: int,
    at: Position = None,
    rows: int,
) -> None:
    """q and k have four dimensions; cos and sin are (batch, row, head, column)."""
    g.require(
        rotated % 2 == 0 and rotated <= q.shape[3],
        f"rotated columns must be even and at most {q.shape[3]}",
        rotated,
    )
    if isinstance(at, DataInt):
        g.limit(at, q.shape[seq], rows)
    code, inputs, params = position_code(at, rows, isinstance(at, Tensor | int))
    read = {"q": q, "c": cos, "s": sin}
    if k is None:
        code += _NO_KEY
        params["k_n"] = params["k_s"] = (0, 0, 0, 0, 0)
    else:
        read["k"] = k
        params["k_n"] = k.shape
    for name, tensor in read.items():
        params[f"{name}_s"] = (tensor.offset, *tensor.strides)
    g.dispatch(
        "rotary",
        {**read, **inputs},
        dict(zip(("yq", "yk"), outs)),
        {**params, "count": q.numel, "q_n": q.shape, "rotated": rotated},
        invocations=q.numel + (0 if k is None else k.numel),
        consts={
            "INTERLEAVED": interleaved,
            "SHARED": cos.shape[3] * 2 == rotated,
            "SEQ": seq,
        },
        raw={"q", "k", "c", "s"},
        code=code,
    )


def _angles(g: Recorder, table: Tensor, seq: int, q: Tensor) -> Tensor:
    """[S, C] or [S, H, C] as (batch, row, head, column)."""
    g.require(table.rank in (2, 3), "angles must have 2 or 3 dimensions", table.rank)
    view = table.unsqueeze(1) if table.rank == 2 else table
    rows, heads, columns = view.shape
    if heads == 1:
        view = view.expand((rows, q.shape[3 - seq], columns))
    else:
        most = q.shape[3 - seq]
        g.require(heads == most, f"heads of angles must be {most}", heads)
    return view.unsqueeze(0).expand((q.shape[0], *view.shape))


def _check(g: Recorder, q: Tensor, k: Tensor) -> None:
    g.require(
        q.rank == 4 and k.rank == 4, "q and k must have 4 dimensions", (q.rank, k.rank)
    )
    g.require(q.dtype.is_float, "q must be of a float type", q.dtype.label)
    g.require(q.shape[3] == k.shape[3], f"k must have {q.shape[3]} columns", k.shape[3])


@op("et_vk.apply_rotary_emb.default")
def apply_rotary_emb(
    g: Recorder,
    xq: Tensor,
    xk: Tensor,
    freqs_cos: Tensor,
    freqs_sin: Tensor,
    *,
    out: list[Output],
) -> None:
    _check(g, xq, xk)
    columns = freqs_cos.shape[-1]
    g.require(
        columns * 2 == xq.shape[3],
        f"angles must have {xq.shape[3] // 2} columns",
        columns,
    )
    g.require(
        freqs_cos.shape[0] == xq.shape[1],
        f"angles must have {xq.shape[1]} rows",
        freqs_cos.shape[0],
    )
    g.require(
        freqs_cos.rank == 2 or xq.shape[2] == xk.shape[2],
        "angles per head need as many k heads as q heads",
        xk.shape[2],
    )
    rotate(
        g,
        xq,
        xk,
        _angles(g, freqs_cos, 1, xq),
        _angles(g, freqs_sin, 1, xq),
        out,
        interleaved=True,
        rotated=xq.shape[3],
        seq=1,
        rows=xq.shape[1],
    )


@op("et_vk.apply_rotary_emb_hf.default", data_ints=(4,))
def apply_rotary_emb_hf(
    g: Recorder,
    xq: Tensor,
    xk: Tensor,
    freqs_cos: Tensor,
    freqs_sin: Tensor,
    start_pos: DataInt | int,
    *,
    out: list[Output],
) -> None:
    _check(g, xq, xk)
    rank = freqs_cos.rank
    g.require(rank == 2, "angles must have 2 dimensions", rank)
    rows, rotated = freqs_cos.shape
    if isinstance(start_pos, int):
        g.require(
            0 <= start_pos <= rows - xq.shape[1],
            f"start_pos must be at most {rows - xq.shape[1]}",
            start_pos,
        )
    rotate(
        g,
        xq,
        xk,
        _angles(g, freqs_cos, 1, xq),
        _angles(g, freqs_sin, 1, xq),
        out,
        interleaved=False,
        rotated=rotated,
        seq=1,
        at=start_pos,
        rows=rows,
    )


@op("et_vk.apply_rotary_emb_interleaved.default")
def apply_rotary_emb_interleaved(
    g: Recorder, x: Tensor, freqs_cis: Tensor, *, out: Output
) -> None:
    g.require(
        x.rank == 3 and x.shape[2] % 2 == 0,
        "x must have 3 dimensions, the last even",
        list(x.shape),
    )
    g.require(x.dtype.is_float, "x must be of a float type", x.dtype.label)
    batch, length, columns = x.shape
    g.require(
        freqs_cis.numel == length * columns,
        f"there must be {length * columns} angles",
        freqs_cis.numel,
    )
    pairs = g.reshape(freqs_cis, (1, length, 1, columns // 2, 2))
    cos, sin = (
        pairs.select(4, component).expand((batch, length, 1, columns // 2))
        for component in (0, 1)
    )
    four = g.reshape(x, (batch, length, 1, columns))
    y = g.output(four.shape, x.dtype)
    rotate(
        g,
        four,
        None,
        cos,
        sin,
        [y],
        interleaved=True,
        rotated=columns,
        seq=1,
        rows=length,
    )
    g.alias(out, g.reshape(y.tensor, out.shape))


@op("webgpu.rotary")
def rotary(
    g: Recorder,
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    seq: int,
    interleaved: bool,
    *,
    out: list[Output] | Output,
) -> None:
    """Angles for each token, broadcast to q: one for every column, or every pair."""
    _check(g, q, q if k is None else k)
    outs = out if isinstance(out, list) else [out]
    order = (0, 1, 2, 3) if seq == 1 else (0, 2, 1, 3)
    angles = (*q.shape[:3], cos.shape[-1])
    rotate(
        g,
        q,
        k,
        cos.expand(angles).permute(order),
        sin.expand(angles).permute(order),
        outs,
        interleaved=interleaved,
        rotated=q.shape[3],
        seq=seq,
        rows=q.shape[seq],
    )
