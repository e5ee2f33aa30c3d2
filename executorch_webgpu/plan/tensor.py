"""Tensor: what an op function sees of a value, a strided view of its elements.

The elements are in a store, which becomes one GPU buffer, or in the program's constant
data, or not stored: their producer is inlined into their reader. Shape ops only make
another view, so that a permute, slice or expand costs nothing until a kernel needs its
elements contiguous; kernels that read through strides take the view as it is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from ..errors import Unsupported
from ..ir.dtypes import DType, Storage
from .plan import Part, Role

if TYPE_CHECKING:
    from ..ir import Step


@dataclass(frozen=True, eq=False)
class Store:
    """A buffer to be: its role, and its bytes at the upper bound of all shapes."""

    role: Role
    size: int
    key: str = ""


@dataclass(frozen=True)
class ConstantSource:
    """The named data behind a constant tensor, or the parts that it is made of."""

    key: str
    dtype: DType
    shape: tuple[int, ...]
    parts: tuple[Part, ...] = ()


def joint_key(keys: Iterable[str]) -> str:
    """What a constant is called that is made of parts with these keys."""
    return "+".join(keys)


@dataclass(frozen=True, eq=False)
class Lazy:
    """An elementwise program that is inlined into its reader: it has no store.

    `whole` is the output to write if the elements have to be in a buffer after all.
    """

    steps: Sequence[Step]
    operands: Mapping[int, Tensor]
    whole: Pending


@dataclass(frozen=True)
class Window:
    """A range of a buffer, in bytes, that a dispatch binds instead of all of it."""

    offset: int
    size: int


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a contiguous tensor."""
    strides: list[int] = []
    stride = 1
    for extent in reversed(shape):
        strides.append(stride)
        stride *= max(extent, 1)
    return tuple(reversed(strides))


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape to which all of these can be expanded; ValueError if there is none."""
    made: list[int] = []
    for extents in itertools.zip_longest(*map(reversed, shapes), fillvalue=1):
        wide = [extent for extent in extents if extent != 1] or [1]
        if any(extent != wide[0] for extent in wide):
            raise ValueError(f"sizes must be equal or 1, got {extents}")
        made.append(wide[0])
    return tuple(reversed(made))


def reach(shape: Sequence[int], strides: Sequence[int], offset: int) -> tuple[int, int]:
    """The lowest and the highest index of a strided view that has elements."""
    ends = [(extent - 1) * stride for extent, stride in zip(shape, strides)]
    lowest = offset + sum(end for end in ends if end < 0)
    return lowest, offset + sum(end for end in ends if end > 0)


def buffer_bytes(numel: int, storage: Storage) -> int:
    """The size of a buffer of `numel` elements, rounded up to 16 bytes, so that it can
    be bound as vec4 and copied whole."""
    return max(16, -(-numel * storage.size // 16) * 16)


@dataclass(frozen=True, eq=False)
class Shaped:
    """The shape and type of a value; `bound` is its largest count of elements."""

    shape: tuple[int, ...]
    dtype: DType
    bound: int

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def dim(self, index: int) -> int:
        """A dimension, which may be counted from the end, counted from the front."""
        end = max(self.rank, 1)  # a scalar is seen as a vector
        if not -end <= index < end:
            raise Unsupported(f"a dimension must be in [{-end}, {end}), got {index}")
        return index + self.rank if index < 0 else index


class Pending(Protocol):
    """A value that is written later, or never: an `Output`."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> DType: ...

    @property
    def written(self) -> Tensor | None:
        """What others read, if it is there already."""


@dataclass(frozen=True, eq=False)
class Tensor(Shaped):
    """A view: live shape, type, and strides and offset in elements of its origin."""

    storage: Storage
    strides: tuple[int, ...]
    origin: Store | ConstantSource | Lazy
    offset: int = 0
    # The range of the store to bind, if not all; the offset counts from its begin.
    window: Window | None = None

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements are in row-major order, from the first on, no gaps."""
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
    def source(self) -> ConstantSource | None:
        """The data of a constant as the program has it; None if it is no constant."""
        return self.origin if isinstance(self.origin, ConstantSource) else None

    @property
    def is_constant(self) -> bool:
        return self.source is not None

    @property
    def store(self) -> Store | None:
        """Where the elements are; None if they are constant data, or inlined."""
        if isinstance(self.origin, Lazy):
            written = self.origin.whole.written
            return None if written is None else written.store
        return self.origin if isinstance(self.origin, Store) else None

    @property
    def is_state(self) -> bool:
        """Whether the elements are in a buffer that lives across calls."""
        return self.store is not None and self.store.role is Role.STATE

    @property
    def lazy(self) -> Lazy | None:
        """The elementwise program to inline; None if the elements are stored."""
        lazy = self.origin if isinstance(self.origin, Lazy) else None
        return lazy if self.store is None else None

    @property
    def bytes(self) -> int:
        """The size of a buffer that holds these elements at the upper bound."""
        return buffer_bytes(max(self.bound, self.numel), self.storage)

    def with_view(
        self, shape: Sequence[int], strides: Sequence[int], offset: int | None = None
    ) -> Tensor:
        return replace(
            self,
            shape=tuple(shape),
            strides=tuple(strides),
            offset=self.offset if offset is None else offset,
        )

    def permute(self, dims: Sequence[int]) -> Tensor:
        order = [self.dim(d) for d in dims]
        if sorted(order) != list(range(self.rank)):
            raise Unsupported(
                f"an order must have each of {self.rank} dimensions, got {list(dims)}"
            )
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
        fits = all(old in (1, new) for old, new in zip(self.shape, shape[lead:]))
        if lead < 0 or not fits:
            raise Unsupported(
                f"a tensor must broadcast to {list(shape)}, got {list(self.shape)}"
            )
        strides = [0] * lead
        for extent, old, stride in zip(shape[lead:], self.shape, self.strides):
            strides.append(0 if old == 1 and extent != 1 else stride)
        return self.with_view(shape, strides)

    def slice(self, dim: int, start: int, length: int, step: int = 1) -> Tensor:
        dim = self.dim(dim)
        shape, strides = list(self.shape), list(self.strides)
        last = start + (length - 1) * step
        if length > 0 and not (0 <= start < shape[dim] and 0 <= last < shape[dim]):
            raise Unsupported(
                f"a slice must be in [0, {shape[dim]}), got {start} to {last}"
            )
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
        """The same elements in another shape; None if that needs a copy."""
        if math.prod(shape) != self.numel:
            raise Unsupported(
                f"a view must have {self.numel} elements, got {list(shape)}"
            )
        if self.numel == 0 or self.is_contiguous:
            return self.with_view(shape, row_major(shape))
        blocks = collapse(self.shape, [self.strides])
        strides: list[int] = []
        block = len(blocks.shape) - 1
        left, stride = blocks.shape[block], blocks.strides[0][block]
        for extent in reversed(shape):
            if extent == 1:
                strides.append(stride)
                continue
            if left == 1 and block > 0:
                block -= 1
                left, stride = blocks.shape[block], blocks.strides[0][block]
            if left % extent:
                return None
            strides.append(stride)
            left, stride = left // extent, stride * extent
        return self.with_view(shape, tuple(reversed(strides)))


@dataclass(frozen=True)
class Collapsed:
    """A shape with as few dimensions as the strides of all operands allow."""

    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


def collapse(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> Collapsed:
    """Merges neighbouring dimensions that each operand crosses with one stride.

    `strides` are those of each operand; all have `shape`.
    """
    extents: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for dim, extent in enumerate(shape):
        if extent == 1:
            continue
        if extents and all(
            new[-1] == old[dim] * extent for new, old in zip(merged, strides)
        ):
            extents[-1] *= extent
            for new, old in zip(merged, strides):
                new[-1] = old[dim]
        else:
            extents.append(extent)
            for new, old in zip(merged, strides):
                new.append(old[dim])
    if not extents:
        return Collapsed((1,), tuple((0,) for _ in strides))
    return Collapsed(tuple(extents), tuple(map(tuple, merged)))


@dataclass(frozen=True)
class DataInt:
    """An integer that is not known when planning (an LLM's position): kernels read it.

    `tensor` holds one int32; the value is that plus `add`.
    """

    tensor: Tensor
    add: int = 0
