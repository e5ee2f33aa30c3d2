"""What ops make of sizes: the extents of a result from those of the operands.

Enters: a call whose operands have sizes that are expressions, and the largest extents
of its results, which the file has. Leaves: the extents of the results. An op that is
neither here nor in `view_shapes.py`, or whose sizes a rule cannot tell, is `Undecided`;
`infer.py` then has it at its largest sizes alone. So a rule that is missing is an error
at other sizes, never a wrong result, and what each tells is compared with the file's
largest extents.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..plan.pointwise import FORMULAS
from . import sizes, view_shapes
from .sized import RULES, Rule, Shape, Sized, rule
from .sizes import Dim, Undecided

assert view_shapes.__name__  # its rules are among RULES


def rule_of(op: str) -> Rule:
    found = RULES.get(op)
    if found is not None:
        return found
    if op in FORMULAS:
        return _broadcast
    raise Undecided(f"{op} must have a rule for sizes")


def _broadcast(call: Sized) -> Sequence[Shape]:
    made: list[Dim] = []
    for shape in call.tensors():
        made = [*[1] * (len(shape) - len(made)), *made]
        first = len(made) - len(shape)
        for at, size in enumerate(shape, first):
            if made[at] == 1:
                made[at] = size
            elif size != 1:
                made[at] = call.equal(made[at], size)
    return [tuple(made)]


@rule(
    "aten._softmax.default",
    "aten._log_softmax.default",
    "aten.clone.default",
    "aten.alias_copy.default",
    "aten.flip.default",
    "aten.full_like.default",
    "aten.ones_like.default",
    "aten.zeros_like.default",
    "aten._native_batch_norm_legit_no_training.default",
    "dim_order_ops._clone_dim_order.default",
    "dim_order_ops._to_dim_order_copy.default",
    "aten._to_copy.default",
    "et_vk.prepack.default",
    "et_vk.rms_norm.default",
    "et_vk.q8ta_relu.default",
    "llama.custom_sdpa.default",
    "llama.sdpa_with_kv_cache.default",
    "quantized_decomposed.quantize_per_tensor.default",
    "quantized_decomposed.quantize_per_tensor.tensor",
    "quantized_decomposed.dequantize_per_tensor.default",
    "quantized_decomposed.dequantize_per_tensor.tensor",
    "quantized_decomposed.quantize_per_channel.default",
    "quantized_decomposed.dequantize_per_channel.default",
    "quantized_decomposed.quantize_per_token.default",
    "quantized_decomposed.dequantize_per_token.default",
    "torchao.quantize_affine.default",
    "torchao.dequantize_affine.default",
)
def _same(call: Sized) -> Sequence[Shape]:
    return [call.shape(0), *call.most[1:]]


@rule("et_vk.q8ta_add.default")
def _sum(call: Sized) -> Sequence[Shape]:
    a, b = call.shape(0), call.shape(1)
    if len(a) != len(b):
        raise Undecided("operands must have one rank")
    return [tuple(map(call.equal, a, b))]


@rule("llama.update_cache.default")
def _cache(call: Sized) -> Sequence[Shape]:
    return call.most


# -- products ----------------------------------------------------------


@rule(
    "aten.linear.default",
    "et_vk.linear_q4gsw.default",
    "et_vk.linear_qcs4w.default",
    "et_vk.linear_dq8ca_q4gsw.default",
    "et_vk.linear_q8ta_q8csw.default",
    "et_vk.q8ta_linear.default",
    "et_vk.q8ta_linear_gemv.default",
)
def _linear(call: Sized) -> Sequence[Shape]:
    """Columns are those of a weight, which has the file's sizes."""
    x, most = call.shape(0), call.most[0]
    call.fix(x[-1])
    return [(*x[:-1], most[-1])]


@rule("aten.mm.default")
def _mm(call: Sized) -> Sequence[Shape]:
    (m, k), (other, n) = call.shape(0), call.shape(1)
    call.equal(k, other)
    return [(m, n)]


@rule("aten.addmm.default")
def _addmm(call: Sized) -> Sequence[Shape]:
    (m, k), (other, n) = call.shape(1), call.shape(2)
    call.equal(k, other)
    return [(m, n)]


@rule("aten.bmm.default")
def _bmm(call: Sized) -> Sequence[Shape]:
    (batch, m, k), (others, other, n) = call.shape(0), call.shape(1)
    call.equal(k, other)
    return [(call.equal(batch, others), m, n)]


@rule("et_vk.sdpa.default")
def _sdpa(call: Sized) -> Sequence[Shape]:
    q, k, v = call.shape(0), call.shape(1), call.shape(2)
    call.equal(q[-1], k[-1])
    call.equal(k[-2], v[-2])
    return [(*q[:-1], v[-1])]


@rule("et_vk.apply_rotary_emb.default")
def _rotary(call: Sized) -> Sequence[Shape]:
    q, k, cos, sin = (call.shape(n) for n in range(4))
    for other in (k[1], cos[0], sin[0]):
        call.equal(q[1], other)
    return [q, k]


@rule("et_vk.apply_rotary_emb_hf.default")
def _rotary_at(call: Sized) -> Sequence[Shape]:
    q, k = call.shape(0), call.shape(1)
    call.equal(q[1], k[1])
    return [q, k]


@rule("et_vk.apply_rotary_emb_interleaved.default")
def _rotary_interleaved(call: Sized) -> Sequence[Shape]:
    x, angles = call.shape(0), call.shape(1)
    call.equal(sizes.mul(*x[1:]), sizes.mul(*angles))
    return [x]


# -- rows, windows and means ----------------------------------------------------------


@rule("aten.mean.dim", "aten.sum.dim_IntList", "aten.amax.default", "aten.amin.default")
@rule("aten.argmax.default", "aten.argmin.default")
def _reduced(call: Sized) -> Sequence[Shape]:
    x = call.shape(0)
    over, keeps = call.dims(1, len(x)), call.args[2] is True
    kept = [
        1 if d in over else size for d, size in enumerate(x) if keeps or d not in over
    ]
    return [tuple(kept)]


@rule(
    "torchao.choose_qparams_affine.default",
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
    "quantized_decomposed.choose_qparams.tensor",
)
def _by_row(call: Sized) -> Sequence[Shape]:
    """One value for each row, with or without a last dimension."""
    x = call.shape(0)
    rows = {len(x) - 1: x[:-1], len(x): (*x[:-1], 1)}
    return [
        most if all(size == 1 for size in most) else rows.get(len(most), most)
        for most in call.most
    ]


@rule("aten.native_layer_norm.default")
def _layer_norm(call: Sized) -> Sequence[Shape]:
    x, normalized = call.shape(0), call.args[1]
    first = len(x) - len(normalized)
    for size, wanted in zip(x[first:], normalized):
        call.equal(size, wanted)
    lead = (*x[:first], *[1] * len(normalized))
    return [x, lead, lead]


@rule("aten.native_group_norm.default")
def _group_norm(call: Sized) -> Sequence[Shape]:
    x = call.shape(0)
    batch, channels, rest, groups = call.args[3:7]
    for size, wanted in ((x[0], batch), (x[1], channels), (sizes.mul(*x[2:]), rest)):
        call.equal(size, wanted)
    return [x, (x[0], groups), (x[0], groups)]


def _windows(size: Dim, reach: int, stride: int) -> Dim:
    """How many windows of `reach` elements there are."""
    return sizes.add(sizes.floordiv(sizes.sub(size, reach), stride), 1)


@rule("aten.convolution.default")
def _convolution(call: Sized) -> Sequence[Shape]:
    x, weight = call.shape(0), call.shape(1)
    rank = len(weight) - 2
    kernel = [size for size in weight[2:] if isinstance(size, int)]
    if len(x) != rank + 2 or len(kernel) != rank:
        raise Undecided("a convolution must have a batch and a weight of one size")
    groups, transposed = call.args[8], call.args[6]
    inner = weight[0] if transposed else sizes.mul(weight[1], groups)
    call.equal(x[1], inner)
    made: list[Dim] = [x[0], call.most[0][1]]
    stride, padding, dilation, more = (call.ints(n, rank) for n in (3, 4, 5, 7))
    for d, size in enumerate(x[2:]):
        reach = dilation[d] * (kernel[d] - 1) + 1
        if transposed:
            spread = sizes.mul(sizes.sub(size, 1), stride[d])
            made.append(sizes.add(spread, reach - 2 * padding[d] + more[d]))
        else:
            made.append(_windows(size, reach - 2 * padding[d], stride[d]))
    return [tuple(made)]


def _pool(call: Sized, dilated: bool) -> Sequence[Shape]:
    x = call.shape(0)
    kernel = call.ints(1, 2)
    padding = call.ints(3, 2)
    stride = call.ints(2, 2) if call.args[2] else kernel
    dilation = call.ints(4, 2) if dilated else [1, 1]
    if call.args[5 if dilated else 4] is not False:
        raise Undecided("windows must be whole")
    made = list(x[:-2])
    for d, size in enumerate(x[-2:]):
        reach = dilation[d] * (kernel[d] - 1) + 1 - 2 * padding[d]
        made.append(_windows(size, reach, stride[d]))
    return [tuple(made)] * len(call.most)


@rule("aten.max_pool2d_with_indices.default")
def _max_pool(call: Sized) -> Sequence[Shape]:
    return _pool(call, dilated=True)


@rule("aten.avg_pool2d.default")
def _avg_pool(call: Sized) -> Sequence[Shape]:
    return _pool(call, dilated=False)


@rule("aten.pixel_shuffle.default", "et_vk.q8ta_pixel_shuffle.default")
def _pixel_shuffle(call: Sized) -> Sequence[Shape]:
    x, most = call.shape(0), call.most[0]
    factors = [call.args[n] for n in range(1, len(call.args))]
    by = next((f for f in factors if type(f) is int and f > 0), None)
    if by is None or len(x) < 3 or not isinstance(x[-3], int):
        raise Undecided("channels must be a number")
    return [(*x[:-3], most[-3], sizes.mul(x[-2], by), sizes.mul(x[-1], by))]


@rule("aten.upsample_nearest2d.vec", "aten.upsample_bilinear2d.vec")
def _upsample(call: Sized) -> Sequence[Shape]:
    x, given, scales = call.shape(0), call.args[1], call.args[-1]
    if isinstance(given, list) and len(given) == 2:
        return [(*x[:-2], *given)]
    if not isinstance(scales, list) or not all(float(s).is_integer() for s in scales):
        raise Undecided("scales must be whole numbers")
    return [(*x[:-2], *(sizes.mul(n, int(s)) for n, s in zip(x[-2:], scales)))]
