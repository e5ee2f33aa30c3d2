"""Elementwise programs on buffers that are larger than one binding.

Enters: the operands of an elementwise program and the tensor that it writes. Leaves:
pieces, one for each dispatch, with what it needs of every tensor as a view of a window,
a range of a buffer that can be bound. A piece is a box of the output's index space,
halved until what it touches of each buffer fits a window, and until what it writes are
runs of contiguous elements, as a `Place` describes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .caps import Caps
from .output import Output, Place
from .tensor import Collapsed, Tensor, Window, collapse

_VEC4_BYTES = 16


@dataclass(frozen=True)
class Piece:
    """What one dispatch reads, in the order of the operands, and what it writes."""

    operands: list[Tensor]
    out: Output


@dataclass(frozen=True)
class _Box:
    """An index range for each dimension of a row-major space."""

    start: tuple[int, ...]
    shape: tuple[int, ...]

    def halves(self, dim: int, unit: int) -> tuple[_Box, _Box]:
        """Two boxes, cut at a multiple of `unit` where there is one."""
        extent = self.shape[dim]
        first = extent // 2
        if first >= unit:
            first -= (self.start[dim] + first) % unit
        return self._slice(dim, 0, first), self._slice(dim, first, extent - first)

    def _slice(self, dim: int, first: int, length: int) -> _Box:
        start, shape = list(self.start), list(self.shape)
        start[dim] += first
        shape[dim] = length
        return _Box(tuple(start), tuple(shape))

    def ends_with(self, other: _Box) -> bool:
        """Whether both have the same last element."""
        ends = [tuple(map(sum, zip(box.start, box.shape))) for box in (self, other)]
        return ends[0] == ends[1]

    def view(self, x: Tensor) -> Tensor:
        """The box of a view of the whole space."""
        skipped = sum(n * stride for n, stride in zip(self.start, x.strides))
        return x.with_view(self.shape, x.strides, x.offset + skipped)


def pieces(operands: Sequence[Tensor], out: Tensor, caps: Caps) -> list[Piece]:
    """The dispatches that write `out`, in ascending order.

    All tensors have stores, and operands can be broadcast to the shape of `out`, which
    may be a view of a larger store. If it is contiguous, the elements behind it may be
    overwritten: they are written later.
    """
    if not out.numel:
        return []
    views = [x.expand(out.shape) for x in operands]
    every = [*views, out]
    layout = collapse(out.shape, [x.strides for x in every])
    seen = [
        x.with_view(layout.shape, strides) for x, strides in zip(every, layout.strides)
    ]
    whole = _Box((0,) * len(layout.shape), layout.shape)
    made = []
    for box in _cut(whole, seen, caps):
        *reads, written = [_window(box.view(x), caps) for x in seen]
        reaches = out.is_contiguous and box.ends_with(whole)
        made.append(Piece(reads, _target(written, reaches)))
    return made


def is_in_order(x: Tensor) -> bool:
    """Whether the strides of a view descend, as those of a contiguous tensor do."""
    strides = [s for n, s in zip(x.shape, x.strides) if n > 1 and s]
    return strides == sorted(map(abs, strides), reverse=True)


def _cut(box: _Box, tensors: Sequence[Tensor], caps: Caps) -> list[_Box]:
    """Boxes that need no more cutting, in ascending order."""
    views = [box.view(x) for x in tensors]
    dims = [_widest(view) for view in views if not _fits(view, caps)]
    if not dims and _runs(views[-1]) is None:
        dims = [next(d for d, extent in enumerate(box.shape) if extent > 1)]
    if not dims:
        return [box]
    # As many elements as the alignment has bytes begin where a window can.
    first, second = box.halves(dims[0], caps.offset_align)
    return [*_cut(first, tensors, caps), *_cut(second, tensors, caps)]


def _widest(view: Tensor) -> int:
    """The dimension that takes a view across most of its store."""
    spans = [(n - 1) * abs(stride) for n, stride in zip(view.shape, view.strides)]
    return spans.index(max(spans))


def _touched(view: Tensor) -> tuple[int, int]:
    """The range of bytes of the store in which a view's elements lie: begin, end."""
    spans = [(n - 1) * stride for n, stride in zip(view.shape, view.strides)]
    low = view.offset + sum(min(span, 0) for span in spans)
    high = view.offset + sum(max(span, 0) for span in spans) + 1
    return low * view.storage.size, high * view.storage.size


def _room(caps: Caps) -> int:
    return caps.max_binding // _VEC4_BYTES * _VEC4_BYTES


def _is_large(view: Tensor, caps: Caps) -> bool:
    assert view.store is not None
    return view.store.size > caps.max_binding


def _fits(view: Tensor, caps: Caps) -> bool:
    """Whether a window holds all that a view touches."""
    if not _is_large(view, caps):
        return True
    low, high = _touched(view)
    return high - low // caps.offset_align * caps.offset_align <= _room(caps)


def _window(view: Tensor, caps: Caps) -> Tensor:
    """The view relative to a window, if its store cannot be bound as a whole.

    The window is as long as it may be, so that it is the same for other shapes.
    """
    if not _is_large(view, caps):
        return view
    assert view.store is not None
    begin = _touched(view)[0] // caps.offset_align * caps.offset_align
    size = min(_room(caps), view.store.size - begin)
    return replace(
        view,
        offset=view.offset - begin // view.storage.size,
        window=Window(begin, size),
    )


def _runs(view: Tensor) -> Collapsed | None:
    """A written view as contiguous runs at equal distances; None if it is not."""
    runs = collapse(view.shape, [view.strides])
    (strides,) = runs.strides
    single = len(runs.shape) == 1
    return runs if single or (len(runs.shape) == 2 and strides[1] == 1) else None


def _target(view: Tensor, may_pass: bool) -> Output:
    """A piece of the output as kernels store it, by row-major index.

    With `may_pass`, its last vec4 may reach behind its end; else that would overwrite
    elements of others.
    """
    runs = _runs(view)
    assert runs is not None
    assert view.store is not None
    (strides,) = runs.strides
    span = total = runs.shape[-1]
    if len(runs.shape) == 2:
        total = strides[0]
    elif strides[0] > 1:
        span, total = 1, strides[0]
    one_run = span == view.numel
    if one_run and not view.offset and (may_pass or view.numel % 4 == 0):
        return Output.over(view)
    place = Place(view.store, view.shape, view.offset, span, total, one_run)
    return Output.over(view, place)
