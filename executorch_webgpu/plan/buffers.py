"""Buffers of one plan in the making: which store the elements of a tensor are in.

Op functions ask for temporaries, and for outputs that other op functions make; inputs,
constants and what kernels have written have a store already.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..errors import Unsupported, shown
from ..ir.dtypes import DType, storage_of
from ..ir.verify import MAX_ELEMENTS
from .caps import Caps
from .constants import Constants
from .output import Output
from .plan import Role
from .tensor import ConstantSource, Lazy, Store, Tensor, buffer_bytes, row_major
from .traced_int import largest


@dataclass(frozen=True)
class CallContext:
    """What the planner knows of the call that is planned."""

    index: int = -1  # in the graph
    op: str = ""
    # States that the call replaces and nothing reads later.
    overwritable: frozenset[Store] = frozenset()


class Buffers:
    """The stores of a plan, for one set of live shapes.

    `bounds`, which grow, are the sizes of temporaries, and what else `at_bound` is
    asked for, at the upper bound, by call and order within it.
    """

    def __init__(self, caps: Caps, bounds: dict[tuple[int, int], int]) -> None:
        self.caps = caps
        self.constants = Constants(caps.f16)
        self._bounds = bounds
        self._call = CallContext()
        self._temporaries: Counter[int] = Counter()  # of each call

    def require(self, met: bool, requirement: str, got: object) -> None:
        """Refuses the op unless `met`: `<op>: <requirement>, got <got>`."""
        if not met:
            raise Unsupported(f"{requirement}, got {shown(got)}")

    def begin(self, call: CallContext) -> None:
        self._call = call

    def output(
        self, shape: Sequence[int], dtype: DType, bound: int | None = None
    ) -> Output:
        """An output for another op function to make, a temporary of the current call.

        `bound` is its largest count of elements, if that is known.
        """
        numel = math.prod(shape)
        bound = self.at_bound(numel) if bound is None else bound
        self.require(
            numel <= bound, f"a tensor must have <= {bound} elements, its bound", numel
        )
        self.require(
            bound <= MAX_ELEMENTS,
            f"a tensor must have <= {MAX_ELEMENTS} elements",
            bound,
        )
        return Output(tuple(shape), dtype, bound)

    def at_bound(self, count: int) -> int:
        """`count`, of what a call makes, at the upper bound of all shapes, so that a
        choice that depends on it is the same for every shape."""
        key = (self._call.index, self._temporaries[self._call.index])
        self._temporaries[self._call.index] += 1
        known = self._bounds.get(key, 0)
        if count > known:
            known = self._bounds[key] = largest(count)
        return known

    def temp(self, shape: Sequence[int], dtype: DType) -> Tensor:
        """A temporary of the current call, for kernels to write."""
        return self.whole(self.output(shape, dtype))

    def whole(self, out: Output) -> Tensor:
        """The whole buffer of `out`, for dispatches that each write some of it."""
        steps = [] if out.epilogue is None else list(out.epilogue.steps)
        self.require(
            not steps, "what is written in pieces must have no epilogue", steps
        )
        out = replace(out, place=None)
        self.allocate(out)
        return out.tensor

    def prepack(
        self,
        x: Tensor,
        packing: str,
        shape: Sequence[int],
        dtype: DType | None = None,
        args: Sequence[int] = (),
    ) -> Tensor:
        """The constant `x`, laid out on the host by `host_packing.py` once, at load."""
        if x.source is None:
            raise AssertionError(f"{self._call.op}: only a constant can be prepacked")
        dtype = x.dtype if dtype is None else dtype
        return self.constants.packed(x, packing, tuple(args), tuple(shape), dtype)

    def store_of(self, x: Tensor) -> Store:
        """The buffer that kernels bind for `x`."""
        if x.source is not None:
            return self.constants.whole(x.source, x.storage)
        store = x.store
        assert store is not None, f"{self._call.op}: an input is not stored"
        return store

    def is_large(self, *values: Tensor | Output) -> bool:
        """Whether one of the values is in a buffer that cannot be bound whole."""
        return any(self._held_bytes(x) > self.caps.max_binding for x in values)

    def _held_bytes(self, x: Tensor | Output) -> int:
        """The size of the buffer that `x` is or will be in; 0 if there is none."""
        if isinstance(x, Output):
            if x.written is None:
                return self.buffer_bytes(x)
            x = x.written
        if x.source is not None:
            return buffer_bytes(math.prod(x.source.shape), x.storage)
        return 0 if x.store is None else x.store.size

    def buffer_bytes(self, out: Output) -> int:
        """The size of a buffer for `out` alone."""
        storage = storage_of(out.stored, self.caps.f16)
        return buffer_bytes(out.bound, storage)

    def allocate(self, out: Output) -> None:
        """Gives `out` its place, or a buffer of its own, unless it has one."""
        if out.written is not None:
            return
        if out.place is None:
            store = Store(Role.SCRATCH, self.buffer_bytes(out))
            out.becomes(self.over(out, store))
            return
        whole, strides = self.over(out, out.place.store), row_major(out.place.shape)
        out.becomes(whole.with_view(out.shape, strides, out.place.at))

    def over(self, out: Output, origin: Store | ConstantSource | Lazy) -> Tensor:
        """`out` as others read it: contiguous, with its elements in `origin`."""
        storage, strides = storage_of(out.stored, self.caps.f16), row_major(out.shape)
        return Tensor(out.shape, out.stored, out.bound, storage, strides, origin)
