"""What ops make of sizes: the extents of a result from those of the operands.

Enters: a call whose operands have sizes that are expressions, and the largest extents of
its results, which the file has. Leaves: the extents of the results. An op that is not
here, or whose sizes a rule cannot tell, is `Undecided`; `infer.py` then runs it at its
largest sizes alone. So a rule that is missing is an error at other sizes, never a wrong
result, and each is compared with the file's largest extents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..plan.pointwise import FORMULAS
from . import sizes
from .sizes import Dim, Undecided

Shape: TypeAlias = tuple[Dim, ...]
# Makes two sizes one, and returns it.
Equal: TypeAlias = Callable[[Dim, Dim], Dim]


@dataclass(frozen=True)
class Sized:
    """A call: tensors among its arguments are shapes, integers sizes."""

    args: Sequence[Any]
    most: Sequence[Shape]  # of its results, as the file has them
    equal: Equal
    fix: Callable[[Dim], None]  # makes a size the largest that it can be

    def shape(self, position: int) -> Shape:
        found = self.args[position]
        if not isinstance(found, tuple):
            raise Undecided(f"argument {position} must be a tensor")
        return found

    def ints(self, position: int, count: int, otherwise: int = 0) -> list[int]:
        """As many numbers, of a list that may have one for all."""
        found = self.args[position]
        if not isinstance(found, list) or not all(type(i) is int for i in found):
            raise Undecided(f"argument {position} must be numbers")
        found = found or [otherwise]
        if len(found) not in (1, count):
            raise Undecided(f"argument {position} must have {count} numbers")
        return found * (count if len(found) == 1 else 1)

    def dim(self, position: int, rank: int) -> int:
        found = self.args[position]
        if type(found) is not int or not -rank <= found < rank:
            raise Undecided(f"argument {position} must be a dimension")
        return found % rank

    def dims(self, position: int, rank: int) -> list[int]:
        """A list of dimensions; all, if there is none."""
        found = self.args[position]
        if found is None or found == []:
            return list(range(rank))
        given = found if isinstance(found, list) else [found]
        if not all(type(i) is int and -rank <= i < rank for i in given):
            raise Undecided(f"argument {position} must be dimensions")
        return [i % rank for i in given]

    def tensors(self) -> Iterator[Shape]:
        for arg in self.args:
            for each in arg if isinstance(arg, list) else [arg]:
                if isinstance(each, tuple):
                    yield each


Rule: TypeAlias = Callable[[Sized], Sequence[Shape]]
_RULES: dict[str, Rule] = {}


def rule_of(op: str) -> Rule:
    found = _RULES.get(op)
    if found is not None:
        return found
    if op in FORMULAS:
        return _broadcast
    raise Undecided(f"{op} must have a rule for sizes")


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def decorate(function: Rule) -> Rule:
        for name in names:
            _RULES[name] = function
        return function

    return decorate


def _replaced(shape: Shape, dim: int, size: Dim) -> Shape:
    return (*shape[:dim], size, *shape[dim + 1 :])


def _broadcast(call: Sized) -> Sequence[Shape]:
    made: list[Dim] = []
    for shape in call.tensors():
        made = [1] * (len(shape) - len(made)) + made
        first = len(made) - len(shape)
        for at, size in enumerate(shape, first):
            if made[at] == 1:
                made[at] = size
            elif size != 1:
                made[at] = call.equal(made[at], size)
    return [tuple(made)]


@_rule(
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


@_rule("et_vk.q8ta_add.default")
def _sum(call: Sized) -> Sequence[Shape]:
    a, b = call.shape(0), call.shape(1)
    if len(a) != len(b):
        raise Undecided("operands must have one rank")
    return [tuple(map(call.equal, a, b))]


@_rule("llama.update_cache.default")
def _cache(call: Sized) -> Sequence[Shape]:
    return call.most


# -- products ---------------------------------------------------------------------------


@_rule(
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


@_rule("aten.mm.default")
def _mm(call: Sized) -> Sequence[Shape]:
    (m, k), (other, n) = call.shape(0), call.shape(1)
    call.equal(k, other)
    return [(m, n)]


@_rule("aten.addmm.default")
def _addmm(call: Sized) -> Sequence[Shape]:
    (m, k), (other, n) = call.shape(1), call.shape(2)
    call.equal(k, other)
    return [(m, n)]


@_rule("aten.bmm.default")
def _bmm(call: Sized) -> Sequence[Shape]:
    (batch, m, k), (others, other, n) = call.shape(0), call.shape(1)
    call.equal(k, other)
    return [(call.equal(batch, others), m, n)]


@_rule("et_vk.sdpa.default")
def _sdpa(call: Sized) -> Sequence[Shape]:
    q, k, v = call.shape(0), call.shape(1), call.shape(2)
    call.equal(q[-1], k[-1])
    call.equal(k[-2], v[-2])
    return [(*q[:-1], v[-1])]


@_rule("et_vk.apply_rotary_emb.default")
def _rotary(call: Sized) -> Sequence[Shape]:
    q, k, cos, sin = (call.shape(n) for n in range(4))
    for other in (k[1], cos[0], sin[0]):
        call.equal(q[1], other)
    return [q, k]


@_rule("et_vk.apply_rotary_emb_hf.default")
def _rotary_at(call: Sized) -> Sequence[Shape]:
    q, k = call.shape(0), call.shape(1)
    call.equal(q[1], k[1])
    return [q, k]


@_rule("et_vk.apply_rotary_emb_interleaved.default")
def _rotary_interleaved(call: Sized) -> Sequence[Shape]:
    x, angles = call.shape(0), call.shape(1)
    call.equal(sizes.mul(*x[1:]), sizes.mul(*angles))
    return [x]


# -- rows, windows and means --------------------------------------------------------------


@_rule("aten.mean.dim", "aten.sum.dim_IntList", "aten.amax.default", "aten.amin.default")
@_rule("aten.argmax.default", "aten.argmin.default")
def _reduced(call: Sized) -> Sequence[Shape]:
    x = call.shape(0)
    over, keeps = call.dims(1, len(x)), call.args[2] is True
    kept = [1 if d in over else size for d, size in enumerate(x) if keeps or d not in over]
    return [tuple(kept)]


@_rule(
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


@_rule("aten.native_layer_norm.default")
def _layer_norm(call: Sized) -> Sequence[Shape]:
    x, normalized = call.shape(0), call.args[1]
    first = len(x) - len(normalized)
    for size, wanted in zip(x[first:], normalized):
        call.equal(size, wanted)
    lead = (*x[:first], *[1] * len(normalized))
    return [x, lead, lead]


@_rule("aten.native_group_norm.default")
def _group_norm(call: Sized) -> Sequence[Shape]:
    x = call.shape(0)
    batch, channels, rest, groups = call.args[3:7]
    for size, wanted in ((x[0], batch), (x[1], channels), (sizes.mul(*x[2:]), rest)):
        call.equal(size, wanted)
    return [x, (x[0], groups), (x[0], groups)]


def _windows(size: Dim, reach: int, stride: int) -> Dim:
    """How many windows of `reach` elements there are."""
    return sizes.add(sizes.floordiv(sizes.sub(size, reach), stride), 1)


@_rule("aten.convolution.default")
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
    stride, padding, dilation, more = (
        call.ints(n, rank) for n in (3, 4, 5, 7)
    )
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


@_rule("aten.max_pool2d_with_indices.default")
def _max_pool(call: Sized) -> Sequence[Shape]:
    return _pool(call, dilated=True)


@_rule("aten.avg_pool2d.default")
def _avg_pool(call: Sized) -> Sequence[Shape]:
    return _pool(call, dilated=False)


@_rule("aten.pixel_shuffle.default", "et_vk.q8ta_pixel_shuffle.default")
def _pixel_shuffle(call: Sized) -> Sequence[Shape]:
    x, most = call.shape(0), call.most[0]
    factors = [call.args[n] for n in range(1, len(call.args))]
    by = next((f for f in factors if type(f) is int and f > 0), None)
    if by is None or len(x) < 3 or not isinstance(x[-3], int):
        raise Undecided("channels must be a number")
    return [(*x[:-3], most[-3], sizes.mul(x[-2], by), sizes.mul(x[-1], by))]


@_rule("aten.upsample_nearest2d.vec", "aten.upsample_bilinear2d.vec")
def _upsample(call: Sized) -> Sequence[Shape]:
    x, given, scales = call.shape(0), call.args[1], call.args[-1]
    if isinstance(given, list) and len(given) == 2:
        return [(*x[:-2], *given)]
    if not isinstance(scales, list) or not all(float(s).is_integer() for s in scales):
        raise Undecided("scales must be whole numbers")
    return [(*x[:-2], *(sizes.mul(n, int(s)) for n, s in zip(x[-2:], scales)))]


# -- views and copies -----------------------------------------------------------------------


@_rule("aten.view_copy.default")
def _view(call: Sized) -> Sequence[Shape]:
    numel, wanted = sizes.mul(*call.shape(0)), list(call.args[1])
    known = sizes.mul(*(size for size in wanted if size != -1))
    if -1 in wanted:
        wanted[wanted.index(-1)] = sizes.floordiv(numel, known)
    else:
        call.equal(numel, known)
    return [tuple(wanted)]


@_rule("aten.squeeze_copy.dims")
def _squeeze(call: Sized) -> Sequence[Shape]:
    x = call.shape(0)
    gone = {d for d in call.dims(1, len(x)) if x[d] == 1}
    return [tuple(size for d, size in enumerate(x) if d not in gone)]


@_rule("aten.unsqueeze_copy.default")
def _unsqueeze(call: Sized) -> Sequence[Shape]:
    x = call.shape(0)
    at = call.dim(1, len(x) + 1)
    return [(*x[:at], 1, *x[at:])]


@_rule("aten.permute_copy.default", "aten.permute.default")
def _permute(call: Sized) -> Sequence[Shape]:
    x = call.shape(0)
    return [tuple(x[d] for d in call.dims(1, len(x)))]


@_rule("aten.t_copy.default")
def _transpose(call: Sized) -> Sequence[Shape]:
    return [tuple(reversed(call.shape(0)))]


@_rule("aten.expand_copy.default")
def _expand(call: Sized) -> Sequence[Shape]:
    x, wanted = call.shape(0), list(call.args[1])
    first = len(wanted) - len(x)
    for at, size in enumerate(x, first):
        if wanted[at] == -1:
            wanted[at] = size
        elif size != 1:
            wanted[at] = call.equal(size, wanted[at])
    return [tuple(wanted)]


@_rule("aten.select_copy.int")
def _select(call: Sized) -> Sequence[Shape]:
    x = call.shape(0)
    at = call.dim(1, len(x))
    return [(*x[:at], *x[at + 1 :])]


@_rule("aten.slice_copy.Tensor")
def _slice(call: Sized) -> Sequence[Shape]:
    x, (start, end, step) = call.shape(0), call.args[2:5]
    at = call.dim(1, len(x))
    size = x[at]
    first = _bounded(0 if start is None else start, size)
    last = size if end is None else _bounded(end, size)
    length = sizes.sub(last, first)
    if step != 1:
        length = sizes.floordiv(sizes.add(length, step - 1), step)
    return [_replaced(x, at, length)]


def _bounded(position: Dim, size: Dim) -> Dim:
    """A position, from the end if it is negative, within a dimension. One that only a
    call knows is: whoever exported the program has seen to it."""
    if not isinstance(position, int) or position == 0:
        return position
    if position < 0:
        return sizes.add(size, position)
    return size if position >= sizes.MAX_FACTOR else sizes.least(position, size)


@_rule("aten.split_with_sizes_copy.default")
def _split(call: Sized) -> Sequence[Shape]:
    x = call.shape(0)
    at = call.dim(2, len(x))
    return [_replaced(x, at, size) for size in call.args[1]]


@_rule("aten.cat.default")
def _cat(call: Sized) -> Sequence[Shape]:
    shapes = [shape for shape in call.tensors() if shape != (0,)]
    at = call.dim(1, len(shapes[0]))
    made = list(shapes[0])
    for shape in shapes[1:]:
        for d, size in enumerate(shape):
            made[d] = (
                sizes.add(made[d], size) if d == at else call.equal(made[d], size)
            )
    return [tuple(made)]


@_rule("aten.repeat.default")
def _repeat(call: Sized) -> Sequence[Shape]:
    x, times = call.shape(0), call.args[1]
    padded = [*[1] * (len(times) - len(x)), *x]
    return [tuple(map(sizes.mul, padded, times))]


@_rule("aten.constant_pad_nd.default")
def _pad(call: Sized) -> Sequence[Shape]:
    made = list(call.shape(0))
    given = call.args[1]
    for number, (before, after) in enumerate(zip(given[::2], given[1::2]), 1):
        made[-number] = sizes.add(sizes.add(made[-number], before), after)
    return [tuple(made)]


@_rule("aten.index_select.default")
def _index_select(call: Sized) -> Sequence[Shape]:
    x = call.shape(0)
    at = call.dim(1, len(x))
    return [_replaced(x, at, sizes.mul(*call.shape(2)))]


@_rule("aten.gather.default")
def _gather(call: Sized) -> Sequence[Shape]:
    return [call.shape(2)]


@_rule("aten.embedding.default")
def _embedding(call: Sized) -> Sequence[Shape]:
    return [(*call.shape(1), call.most[0][-1])]


@_rule("et_vk.embedding_q4gsw.default")
def _embedding_of_groups(call: Sized) -> Sequence[Shape]:
    return [(*call.shape(3), call.most[0][-1])]


@_rule("quantized_decomposed.embedding_4bit.dtype")
def _embedding_of_bits(call: Sized) -> Sequence[Shape]:
    return [(*call.shape(5), call.most[0][-1])]


@_rule("aten.full.default", "aten.ones.default", "aten.zeros.default")
def _filled(call: Sized) -> Sequence[Shape]:
    return [tuple(call.args[0])]


@_rule("aten.arange.start_step")
def _arange(call: Sized) -> Sequence[Shape]:
    start, end, step = call.args[:3]
    if step != 1 or isinstance(start, float) or isinstance(end, float):
        raise Undecided("a range must be of integers, one after the other")
    return [(sizes.sub(end, start),)]
