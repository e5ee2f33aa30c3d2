"""Constants of one plan: views of the program's data -> buffers, filled once, at load.

A buffer is named by all that its content depends on, so that equal content is uploaded
once for all calls, plans and delegates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..ir.dtypes import DType, Storage, storage_of
from .plan import Constant, Role
from .tensor import ConstantSource, Store, Tensor, buffer_bytes, row_major


class Constants:
    """The buffers met so far, by name."""

    def __init__(self, f16: bool) -> None:
        self._f16 = f16
        self.entries: dict[str, tuple[Store, Constant]] = {}

    def whole(self, source: ConstantSource, dtype: DType) -> Store:
        """All of the data, as `dtype`: integers can be held as floats."""
        return self._store(source, None, "", (), source.shape, dtype)

    def copied(self, x: Tensor) -> Tensor:
        """The elements of a view in row-major order."""
        return self.packed(x, "", (), x.shape, x.dtype)

    def packed(
        self,
        x: Tensor,
        packing: str,
        args: tuple[int, ...],
        shape: tuple[int, ...],
        dtype: DType,
    ) -> Tensor:
        """The elements of a view as a packing lays them out, in `shape`."""
        source = x.source
        assert source is not None
        # What is uploaded once is of one size.
        shape = tuple(map(int, shape))
        # A packing sees the shape of the view; else only the elements matter.
        same = x.shape == source.shape or (
            not packing and x.numel == math.prod(source.shape)
        )
        view = None
        if not (same and x.is_contiguous):
            strides = tuple(map(int, x.strides))
            view = (tuple(map(int, x.shape)), strides, int(x.offset))
        store = self._store(source, view, packing, args, shape, dtype)
        storage = storage_of(dtype, self._f16)
        numel = math.prod(shape)
        return Tensor(shape, dtype, numel, storage, row_major(shape), store)

    def _store(
        self,
        source: ConstantSource,
        view: tuple[tuple[int, ...], tuple[int, ...], int] | None,
        packing: str,
        args: tuple[int, ...],
        shape: tuple[int, ...],
        dtype: DType,
    ) -> Store:
        storage = storage_of(dtype, self._f16)
        data = content_name(source.key, source.dtype, source.shape, storage)
        key = f"{data}{view or ''}|{packing}{args or ''}" if view or packing else data
        if key not in self.entries:
            size = buffer_bytes(math.prod(shape), storage)
            constant = Constant(
                -1, source.key, source.dtype, storage, source.shape, view, packing, args
            )
            self.entries[key] = (Store(Role.CONSTANT, size, key), constant)
        return self.entries[key][0]


def content_name(key: str, dtype: DType, shape: Sequence[int], storage: Storage) -> str:
    """What a buffer with all elements of named data, in this storage, is called."""
    return f"{key}|{dtype.label}{list(shape)}|{storage.value}|"
