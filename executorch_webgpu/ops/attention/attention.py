"""Scaled dot-product attention: softmax(q k^T * scale + mask) v.

Enters: q[..., L, E], k[..., S, E], v[..., S, Ev] as strided views, a mask that
broadcasts, or a causal one. Leaves: every element of the output written once.

Two forms: `attention_split`, for GPUs, stores no scores. The other computes blocks of
queries, each with three dispatches: a product, the exponentials of its rows, and a
product that divides by their sums. A block has as many queries as keep its scores
small, so that a large [L, S] is never stored whole; a causal one skips the keys after
it. Where blocks would be too many, the first form is taken on every adapter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from ...ir.dtypes import DType
from ...plan import registry
from ...plan.accuracy import TOLERANT
from ...plan.recorder import DataInt, Output, Recorder, Tensor
from ...plan.tensor import broadcast
from ...plan.traced_int import starts
from ...plan.wgsl_text import Param
from ..matmul.matmul import multiply
from ..matmul.product import Product
from ..reduce import workgroup_reduction
from .attention_split import Seen, attend_split, can_split

op = partial(registry.op, accuracy=TOLERANT)

# Scores of one block of queries, at most: 16 MiB.
_BLOCK = 1 << 22
# Blocks of one call, each of three dispatches: with more, nothing but the split form is
# planned in time. Head sizes that it cannot take may have four times as many.
_MOST_BLOCKS = 256


@dataclass(frozen=True)
class _Masking:
    """Which keys a query sees: by a mask, added or boolean, and by position."""

    mask: Tensor | None
    causal: bool
    start: int | DataInt  # position of the first query
    length: int | DataInt  # live keys
    hidden: float | None = None  # the score where a boolean mask hides; None: adds -inf

    @property
    def unseen(self) -> str:
        """WGSL for the result of a query that sees no key."""
        return "0.0" if self.hidden is None else "nan()"


def attend(
    g: Recorder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    scale: float | None,
    causal: bool,
    kv_len: int | DataInt,
    start: int | DataInt,
    out: Output,
    by_token: bool = False,
    hidden: float | None = None,
) -> None:
    """Attention of q[B, H, L, E] over k, v[B, Hkv, S, E], H a multiple of Hkv.

    Only the first `kv_len` keys count; with `causal`, query i sees keys up to and
    including start + i. Both may be integers that only the data knows. `out` is
    contiguous, [B, H, L, Ev], or [B, L, H, Ev] if `by_token`.
    """
    batch, heads, queries, depth = q.shape
    shared = heads // max(1, k.shape[1])
    keys = k.shape[2]
    masking = _Masking(mask, causal, start, kv_len, hidden)
    factor = depth**-0.5 if scale is None else scale
    if out.numel == 0 or keys == 0:
        _zeros(g, out)
        return
    rows = max(16, _BLOCK // max(1, batch * heads * keys))
    forms = _forms(g, q, v, -(-queries // rows))
    shape = (batch * heads // shared, shared * queries, keys, depth)
    if g.choose("attention", shape, forms, q.dtype) == "split":
        whole = _Block(0, queries, keys, queries)
        width = v.shape[3]
        strides = (heads * queries * width, queries * width, width)
        if by_token:
            strides = (heads * queries * width, width, heads * width)
        attend_split(g, q, k, v, factor, _seen(masking, q, whole), out, strides)
        return
    k, v = _per_query_head(k, shared), _per_query_head(v, shared)
    for first in starts(queries, rows):
        count = min(rows, queries - first)
        seen = keys
        if causal and isinstance(start, int):
            seen = max(1, min(keys, start + first + count))
        block = _Block(first, count, seen, queries)
        _attend_block(g, q, k, v, masking, factor, block, out, by_token)


def _forms(g: Recorder, q: Tensor, v: Tensor, blocks: int) -> list[str]:
    """The forms that compute this, the preferred one first."""
    blocks = g.at_bound(blocks)
    if not can_split(q, v):
        most = 4 * _MOST_BLOCKS
        g.require(
            blocks <= most,
            f"head sizes must be multiples of 4, up to 256, for more than {most} blocks"
            " of queries",
            (q.shape[3], v.shape[3], blocks),
        )
        return ["products"]
    if blocks > _MOST_BLOCKS:
        return ["split"]
    return ["products", "split"] if g.caps.is_cpu else ["split", "products"]


@dataclass(frozen=True)
class _Block:
    """Queries [first, first + count) of all `queries`, and how many keys they see."""

    first: int
    count: int
    keys: int
    queries: int


def _per_query_head(x: Tensor, shared: int) -> Tensor:
    """[B, Hkv, S, E] as [B, Hkv, shared, S, E]: each head serves `shared` queries."""
    batch, heads, keys, depth = x.shape
    return x.unsqueeze(2).expand((batch, heads, shared, keys, depth))


def _attend_block(
    g: Recorder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    masking: _Masking,
    scale: float,
    block: _Block,
    out: Output,
    by_token: bool,
) -> None:
    batch, kv_heads, shared, _, depth = k.shape
    heads = kv_heads * shared
    few = q.slice(2, block.first, block.count)
    of_batch, of_head, *rest = few.strides
    few = few.with_view(
        (batch, kv_heads, shared, block.count, depth),
        (of_batch, of_head * shared, of_head, *rest),
    )
    k, v = k.slice(3, 0, block.keys), v.slice(3, 0, block.keys)
    scores = g.output((batch, heads, block.count, block.keys), DType.FLOAT32)
    multiply(g, Product(few, k.transpose(3, 4), alpha=scale), scores)
    weights, sums = _weights(g, scores.tensor, masking, block)
    lead = (batch, kv_heads, shared)
    weights = weights.with_view(
        (*lead, block.count, block.keys), (*_strides(lead, block), block.keys, 1)
    )
    product = Product(
        weights,
        v,
        row_scale=sums,
        first_row=block.first,
        rows=block.queries,
        heads=heads if by_token else 1,
    )
    multiply(g, product, out)


def _strides(lead: tuple[int, int, int], block: _Block) -> tuple[int, int, int]:
    one = block.count * block.keys
    return (lead[1] * lead[2] * one, lead[2] * one, one)


def _weights(
    g: Recorder, scores: Tensor, masking: _Masking, block: _Block
) -> tuple[Tensor, Tensor]:
    """exp(scores - row's maximum), and the reciprocals of the row sums."""
    rows = math.prod(scores.shape[:-1])
    weights = g.temp(scores.shape, DType.FLOAT32)
    sums = g.temp((rows,), DType.FLOAT32)
    quads = block.keys % 4 == 0
    along = 1 if g.caps.is_cpu else 64
    workgroup = 8 if g.caps.is_cpu else 64
    mask_code, inputs, params = _mask_code(masking, scores, block)
    reach_code, reach_inputs, reach_params = _reach_code(masking, block)
    vec4 = ["x", "y"] if quads else []
    g.dispatch(
        "attention_weights",
        {"x": scores, **inputs, **reach_inputs},
        {"y": weights, "z": sums},
        {
            "rows": rows,
            "keys": block.keys,
            "queries": block.count,
            **params,
            **reach_params,
        },
        workgroups=-(-rows * along // workgroup),
        workgroup=workgroup,
        consts={"ALONG": along},
        vec4=vec4,
        raw=["mask"],
        code="\n".join(
            [
                _access_code(quads),
                mask_code,
                reach_code,
                _reduce_code(g, rows, block.keys, along),
                f"fn unseen() -> f32 {{ return {masking.unseen}; }}",
            ]
        ),
    )
    return weights, sums


def _access_code(quads: bool) -> str:
    if quads:
        return (
            "fn load_keys(at: i32) -> vec4<f32> { return get_x4(at >> 2u); }\n"
            "fn store_keys(row: i32, j: i32, v: vec4<f32>)"
            " { put_y4((row + j) >> 2u, v); }"
        )
    loads = ", ".join(f"get_x(at + {i})" for i in range(4))
    stores = " ".join(
        f"if (j + {i} < p.keys) {{ put_y(row + j + {i}, v[{i}]); }}" for i in range(4)
    )
    # Past the end of a row this reads the next one's scores, which reach() hides.
    return (
        f"fn load_keys(at: i32) -> vec4<f32> {{ return vec4<f32>({loads}); }}\n"
        f"fn store_keys(row: i32, j: i32, v: vec4<f32>) {{ {stores} }}"
    )


def _seen(masking: _Masking, q: Tensor, block: _Block) -> Seen:
    """What a query sees, as `attend_split` takes it."""
    mask_code, inputs, params = _mask_code(masking, q, block)
    score = "s"
    if masking.mask is not None:
        score = "mask_at(s, (b * mask_s_at(5) + head) * p.queries + i, j)"
    signature = "fn masked(s: f32, b: i32, head: i32, i: i32, j: i32) -> f32"
    reach, more, numbers = _reach_code(masking, block)
    code = f"{mask_code}\n{signature} {{ return {score}; }}\n{reach}"
    return Seen(
        code,
        {**inputs, **more},
        {"keys": block.keys, **params, **numbers},
        raw=("mask",),
        unseen=masking.unseen,
    )


def _mask_code(
    masking: _Masking, scores: Tensor, block: _Block
) -> tuple[str, dict[str, Tensor], dict[str, Param]]:
    """mask_keys(s, row, j): four scores of a query, from key j on, with the mask."""
    signature = "fn mask_keys(s: vec4<f32>, row: i32, j: i32) -> vec4<f32>"
    mask = masking.mask
    if mask is None:
        return f"{signature} {{ return s; }}", {}, {}
    batch, heads = scores.shape[:2]
    view = mask.expand((batch, heads, block.queries, mask.shape[-1]))
    view = view.slice(2, block.first, block.count)
    params: dict[str, Param] = {
        "mask_s": (view.offset, *view.strides, heads, view.shape[-1])
    }
    value = "get_mask(mask_index(row, k))"
    score = f"s + {value}"
    if mask.dtype is DType.BOOL:
        score = f"s + select(-inf(), 0.0, {value} != 0)"
        if masking.hidden is not None:
            params["hidden"] = masking.hidden
            score = f"select(p.hidden, s, {value} != 0)"
    lanes = ", ".join(f"mask_at(s[{i}], row, j + {i})" for i in range(4))
    code = (
        f"fn mask_at(s: f32, row: i32, k: i32) -> f32 {{ return {score}; }}\n"
        f"{signature} {{ return vec4<f32>({lanes}); }}"
    )
    return code, {"mask": mask}, params


def _reach_code(
    masking: _Masking, block: _Block
) -> tuple[str, dict[str, Tensor], dict[str, Param]]:
    """reach(i): how many keys query i of the block may see."""
    inputs: dict[str, Tensor] = {}
    params: dict[str, Param] = {}

    def value(name: str, number: int | DataInt, add: int) -> str:
        if isinstance(number, DataInt):
            inputs[name] = number.tensor
            params[f"{name}_add"] = number.add + add
            return f"get_{name}(0) + p.{name}_add"
        params[f"{name}_add"] = number + add
        return f"p.{name}_add"

    reach = f"min(p.keys, {value('live', masking.length, 0)})"
    if masking.causal:
        reach = f"min({reach}, i + {value('start', masking.start, block.first + 1)})"
    return f"fn reach(i: i32) -> i32 {{ return {reach}; }}", inputs, params


def _reduce_code(g: Recorder, rows: int, keys: int, along: int) -> str:
    """row_max and row_sum over the invocations of a row."""
    joins = [("row_max", workgroup_reduction.MAX), ("row_sum", workgroup_reduction.SUM)]
    if along == 1:
        return workgroup_reduction.alone([name for name, _ in joins])
    forms = workgroup_reduction.forms(g.caps)
    form = g.choose("attention weights", (rows, keys), forms, DType.FLOAT32)
    return workgroup_reduction.across(form, joins)


def _zeros(g: Recorder, out: Output) -> None:
    g.dispatch(
        "elementwise",
        {},
        {"y": out},
        {},
        invocations=out.numel,
        code="fn program(i: i32) -> f32 { return 0.0; }",
    )


@op("aten.scaled_dot_product_attention.default", twin=True, fusible=True, keep=True)
def scaled_dot_product_attention(
    g: Recorder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    out: Output,
) -> None:
    given = (attn_mask, dropout_p, is_causal, scale, enable_gqa)
    attention(g, q, k, v, *given, None, out=out)


@op("webgpu.attention", fusible=True)
def attention(
    g: Recorder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    hidden: float | None,
    *,
    out: Output,
    by_token: bool = False,
) -> None:
    """`hidden` is the score where a boolean mask is false. With it, a query that sees
    no key gives NaN, as a softmax that is written out does."""
    g.require(dropout_p == 0, "dropout_p must be 0", dropout_p)
    g.require(q.dtype.is_float, "q must be of a float type", q.dtype.label)
    if attn_mask is not None:
        known = attn_mask.dtype.is_float or attn_mask.dtype is DType.BOOL
        g.require(known, "attn_mask must be float or bool", attn_mask.dtype.label)
    least = min(x.rank for x in (q, k, v))
    g.require(least >= 2, "q, k and v must have 2 or more dimensions", least)
    q, k, v = _broadcast(q, k, v, enable_gqa)
    if attn_mask is not None and attn_mask.rank > 3:
        attn_mask = attn_mask.expand((*q.shape[:-3], *attn_mask.shape[-3:]))
        attn_mask = _four_dimensional(g, attn_mask)
    q, k, v = (_four_dimensional(g, x) for x in (q, k, v))
    keys = k.shape[2]
    attend(
        g, q, k, v, attn_mask, scale, is_causal, keys, 0, out, by_token, hidden=hidden
    )


@op("et_vk.sdpa.default")
def sdpa(
    g: Recorder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
    *,
    out: Output,
) -> None:
    g.run(
        "aten.scaled_dot_product_attention.default",
        q,
        k,
        v,
        attn_mask,
        0.0,
        False,
        scale,
        False,
        out=out,
    )


@op("webgpu.attention_by_token", fusible=True)
def attention_by_token(
    g: Recorder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    hidden: float | None = None,
    *,
    out: Output,
) -> None:
    """The result as [B, L, H, Ev] instead of [B, H, L, Ev]."""
    given = (attn_mask, dropout_p, is_causal, scale, enable_gqa)
    attention(g, q, k, v, *given, hidden, out=out, by_token=True)


def _broadcast(
    q: Tensor, k: Tensor, v: Tensor, grouped: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of at least four dimensions, broadcast in all but the last two; if
    `grouped`, k and v have fewer heads and nothing is broadcast."""
    made = []
    for x in (q, k, v):
        while x.rank < 4:
            x = x.unsqueeze(0)
        made.append(x)
    q, k, v = made
    if not grouped:
        lead = broadcast(*(x.shape[:-2] for x in (q, k, v)))
        q, k, v = (x.expand((*lead, *x.shape[-2:])) for x in (q, k, v))
    return q, k, v


def _four_dimensional(g: Recorder, x: Tensor) -> Tensor:
    """[batch, head, token, column], with all batch dimensions as one."""
    if x.rank == 4:
        return x
    return g.reshape(x, (math.prod(x.shape[:-3]), *x.shape[-3:]))
