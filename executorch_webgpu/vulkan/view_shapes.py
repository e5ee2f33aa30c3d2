"""What views and copies make of sizes: rules as those of `shapes.py`."""

from __future__ import annotations

from collections.abc import Sequence

from . import sizes
from .sized import Shape, Sized, rule
from .sizes import Dim, Undecided


def _replaced(shape: Shape, dim: int, size: Dim) -> Shape:
    return (*shape[:dim], size, *shape[dim + 1 :])


@rule("aten.view_copy.default")
def _view(call: Sized) -> Sequence[Shape]:
    numel, wanted = sizes.mul(*call.shape(0)), list(call.args[1])
    known = sizes.mul(*(size for size in wanted if size != -1))
    if -1 in wanted:
        wanted[wanted.index(-1)] = sizes.floordiv(numel, known)
    else:
        call.equal(numel, known)
    return [tuple(wanted)]


@rule("aten.squeeze_copy.dims")
def _squeeze(call: Sized) -> Sequence[Shape]:
    x = call.shape(0)
    gone = {d for d in call.dims(1, len(x)) if x[d] == 1}
    return [tuple(size for d, size in enumerate(x) if d not in gone)]


@rule("aten.unsqueeze_copy.default")
def _unsqueeze(call: Sized) -> Sequence[Shape]:
    x = call.shape(0)
    at = call.dim(1, len(x) + 1)
    return [(*x[:at], 1, *x[at:])]


@rule("aten.permute_copy.default", "aten.permute.default")
def _permute(call: Sized) -> Sequence[Shape]:
    x = call.shape(0)
    return [tuple(x[d] for d in call.dims(1, len(x)))]


@rule("aten.t_copy.default")
def _transpose(call: Sized) -> Sequence[Shape]:
    return [tuple(reversed(call.shape(0)))]


@rule("aten.expand_copy.default")
def _expand(call: Sized) -> Sequence[Shape]:
    x, wanted = call.shape(0), list(call.args[1])
    first = len(wanted) - len(x)
    for at, size in enumerate(x, first):
        if wanted[at] == -1:
            wanted[at] = size
        elif size != 1:
            wanted[at] = call.equal(size, wanted[at])
    return [tuple(wanted)]


@rule("aten.select_copy.int")
def _select(call: Sized) -> Sequence[Shape]:
    x = call.shape(0)
    at = call.dim(1, len(x))
    return [(*x[:at], *x[at + 1 :])]


@rule("aten.slice_copy.Tensor")
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


@rule("aten.split_with_sizes_copy.default")
def _split(call: Sized) -> Sequence[Shape]:
    x = call.shape(0)
    at = call.dim(2, len(x))
    return [_replaced(x, at, size) for size in call.args[1]]


@rule("aten.cat.default")
def _cat(call: Sized) -> Sequence[Shape]:
    shapes = [shape for shape in call.tensors() if shape != (0,)]
    at = call.dim(1, len(shapes[0]))
    made = list(shapes[0])
    for shape in shapes[1:]:
        for d, size in enumerate(shape):
            made[d] = sizes.add(made[d], size) if d == at else call.equal(made[d], size)
    return [tuple(made)]


@rule("aten.repeat.default")
def _repeat(call: Sized) -> Sequence[Shape]:
    x, times = call.shape(0), call.args[1]
    padded = [*[1] * (len(times) - len(x)), *x]
    return [tuple(map(sizes.mul, padded, times))]


@rule("aten.constant_pad_nd.default")
def _pad(call: Sized) -> Sequence[Shape]:
    made = list(call.shape(0))
    given = call.args[1]
    for number, (before, after) in enumerate(zip(given[::2], given[1::2]), 1):
        made[-number] = sizes.add(sizes.add(made[-number], before), after)
    return [tuple(made)]


@rule("aten.index_select.default")
def _index_select(call: Sized) -> Sequence[Shape]:
    x = call.shape(0)
    at = call.dim(1, len(x))
    return [_replaced(x, at, sizes.mul(*call.shape(2)))]


@rule("aten.gather.default")
def _gather(call: Sized) -> Sequence[Shape]:
    return [call.shape(2)]


@rule("aten.embedding.default")
def _embedding(call: Sized) -> Sequence[Shape]:
    return [(*call.shape(1), call.most[0][-1])]


@rule("et_vk.embedding_q4gsw.default")
def _embedding_of_groups(call: Sized) -> Sequence[Shape]:
    return [(*call.shape(3), call.most[0][-1])]


@rule("quantized_decomposed.embedding_4bit.dtype")
def _embedding_of_bits(call: Sized) -> Sequence[Shape]:
    return [(*call.shape(5), call.most[0][-1])]


@rule("aten.full.default", "aten.ones.default", "aten.zeros.default")
def _filled(call: Sized) -> Sequence[Shape]:
    return [tuple(call.args[0])]


@rule("aten.arange.start_step")
def _arange(call: Sized) -> Sequence[Shape]:
    start, end, step = call.args[:3]
    if step != 1 or isinstance(start, float) or isinstance(end, float):
        raise Undecided("a range must be of integers, one after the other")
    return [(sizes.sub(end, start),)]
