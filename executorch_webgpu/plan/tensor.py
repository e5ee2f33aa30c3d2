"""Tensor: what an op function sees of a value, a strided view of a store.

A store becomes one GPU buffer. Shape ops only make another view, so that a
permute, slice or expand costs nothing until a kernel needs its elements in a
row; kernels that read through strides take the view as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..ir.dtypes import DType, Storage
from .plan import Role

if TYPE_CHECKING:
    from ..ir import Step


@dataclass(eq=False)
class Store:
    """A buffer to be: its role, and its size at the upper bound of all shapes."""

    role: Role
    size: int
    key: str
    first: int = -1  # dispatches between which it is alive
    last: int = -1


@dataclass(frozen=True)
class ConstantSource:
    """The named data behind a constant tensor."""

    key: str
    dtype: DType
    shape: tuple[int, ...]


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a tensor whose last dimension is contiguous."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True)
class Window:
    """A range of a buffer, in bytes, that a launch binds instead of all of it."""

    offset: int
    size: int


@dataclass(eq=False)
class Lazy(Store):
    """A buffer that need not be: who reads element i computes it there and then.

    `whole` is what it would hold, and gets a store of its own if it has to.
    """

    steps: Sequence[Step] = ()
    operands: dict[int, Tensor] = field(default_factory=dict)
    whole: Tensor | None = None


@dataclass(frozen=True)
class Place:
    """A part of a larger tensor: runs of `span` elements, `total` apart, from `at` on.

    With `one_run` there is a single one at every shape.
    """

    store: Store
    shape: tuple[int, ...]  # of the whole
    at: int
    span: int
    total: int
    one_run: bool

    @property
    def in_fours(self) -> bool:
        """Whether no four neighbours are torn apart."""
        return not any(n % 4 for n in (self.at, self.span, self.total))


@dataclass(eq=False)
class Tensor:
    """A view: live shape, type, and strides and offset in elements of the store."""

    shape: tuple[int, ...]
    dtype: DType
    storage: Storage
    strides: tuple[int, ...]
    offset: int = 0
    store: Store | None = None  # None until a kernel writes it
    source: ConstantSource | None = None
    bound: int = 0  # elements at the upper bound of all shapes
    needed: bool = True  # an output that nothing reads need not be written
    # Pointwise steps that a kernel applies as it stores this tensor, the type of
    # their result, and what they read besides.
    post: list[Step] = field(default_factory=list)
    final: DType | None = None
    # Where a kernel should store this tensor instead of a buffer of its own.
    place: Place | None = None
    # The part of the store that is bound; strides and offset count from its begin.
    window: Window | None = None

    @property
    def stored(self) -> DType:
        """The type of the elements in the store, after `post`."""
        return self.dtype if self.final is None else self.final

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        if self.offset:
            return False
        expected = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides)):
            if extent == 1:
                continue
            if stride != expected:
                return self.numel == 0
            expected *= extent
        return True

    @property
    def is_constant(self) -> bool:
        return self.source is not None

    @property
    def lazy(self) -> Lazy | None:
        """The store, if its elements are computed as they are read."""
        store = self.store
        if isinstance(store, Lazy) and store.whole and store.whole.store is None:
            return store
        return None

    @property
    def is_placed(self) -> bool:
        return self.place is not None and self.store is self.place.store

    def dim(self, index: int) -> int:
        """A dimension counted from the end, as torch allows, from the front."""
        return index + self.rank if index < 0 else index

    def with_view(
        self, shape: Sequence[int], strides: Sequence[int], offset: int | None = None
    ) -> Tensor:
        return replace(
            self,
            shape=tuple(shape),
            strides=tuple(strides),
            offset=self.offset if offset is None else offset,
            post=[],
            final=None,
            place=None,
        )

    def permute(self, dims: Sequence[int]) -> Tensor:
        order = [self.dim(d) for d in dims]
        return self.with_view(
            [self.shape[d] for d in order], [self.strides[d] for d in order]
        )

    def transpose(self, first: int, second: int) -> Tensor:
        order = list(range(self.rank))
        first, second = self.dim(first), self.dim(second)
        order[first], order[second] = order[second], order[first]
        return self.permute(order)

    def expand(self, shape: Sequence[int]) -> Tensor:
        """Broadcast: new dimensions in front, and extents of 1 grown, by stride 0."""
        lead = len(shape) - self.rank
        strides = [0] * lead
        for extent, old, stride in zip(shape[lead:], self.shape, self.strides):
            strides.append(0 if old == 1 and extent != 1 else stride)
        return self.with_view(shape, strides)

    def slice(self, dim: int, start: int, length: int, step: int = 1) -> Tensor:
        dim = self.dim(dim)
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + start * strides[dim]
        shape[dim], strides[dim] = length, strides[dim] * step
        return self.with_view(shape, strides, offset)

    def select(self, dim: int, index: int) -> Tensor:
        dim = self.dim(dim)
        view = self.slice(dim, index, 1)
        return view.with_view(
            view.shape[:dim] + view.shape[dim + 1 :],
            view.strides[:dim] + view.strides[dim + 1 :],
        )

    def unsqueeze(self, dim: int) -> Tensor:
        dim = dim + self.rank + 1 if dim < 0 else dim
        return self.with_view(
            (*self.shape[:dim], 1, *self.shape[dim:]),
            (*self.strides[:dim], 1, *self.strides[dim:]),
        )

    def try_view(self, shape: Sequence[int]) -> Tensor | None:
        """The same elements in another shape, or None if strides cannot say it."""
        if self.numel == 0 or self.is_contiguous:
            return self.with_view(shape, row_major(shape))
        blocks = collapse(self.shape, [self.strides])
        strides: list[int] = []
        block = len(blocks.shape) - 1
        left, step = blocks.shape[block], blocks.strides[0][block]
        for extent in reversed(shape):
            if extent == 1:
                strides.append(step)
                continue
            if left == 1 and block > 0:
                block -= 1
                left, step = blocks.shape[block], blocks.strides[0][block]
            if left % extent:
                return None
            strides.append(step)
            left, step = left // extent, step * extent
        return self.with_view(shape, tuple(reversed(strides)))


@dataclass(frozen=True)
class Collapsed:
    """A shape with as few dimensions as the given strides allow."""

    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


def collapse(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> Collapsed:
    """Merges neighbouring dimensions that every operand walks with one stride."""
    extents: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for dim, extent in enumerate(shape):
        if extent == 1:
            continue
        if extents and all(
            step[-1] == stride[dim] * extent for step, stride in zip(steps, strides)
        ):
            extents[-1] *= extent
            for step, stride in zip(steps, strides):
                step[-1] = stride[dim]
        else:
            extents.append(extent)
            for step, stride in zip(steps, strides):
                step.append(stride[dim])
    if not extents:
        return Collapsed((1,), tuple((0,) for _ in strides))
    return Collapsed(tuple(extents), tuple(tuple(step) for step in steps))


@dataclass(frozen=True)
class DataInt:
    """An integer that only the data knows (an LLM's position): kernels read it.

    `tensor` holds one int32; the value is that plus `add`.
    """

    tensor: Tensor
    add: int = 0
