"""Constants of one plan: views of the program's data -> buffers, filled once, at load.

A buffer is named by all that its content depends on, so that equal content is uploaded
once for all calls, plans and delegates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..ir.dtypes import DType, Storage, is_converted, storage_of
from .plan import Constant, Part, Role, View
from .tensor import ConstantSource, Store, Tensor, buffer_bytes, row_major


class Constants:
    """The buffers met so far, by name."""

    def __init__(self, f16: bool) -> None:
        self._f16 = f16
        self.entries: dict[str, tuple[Store, Constant]] = {}

    def whole(self, source: ConstantSource, storage: Storage) -> Store:
        """All of the data, held as `storage`: integers can be held as floats."""
        return self._store(source, None, "", (), source.shape, storage)

    def copied(self, x: Tensor) -> Tensor:
        """The elements of a view in row-major order."""
        return self._packed(x, "", (), x.shape, x.dtype, x.storage)

    def packed(
        self,
        x: Tensor,
        packing: str,
        args: tuple[int, ...],
        shape: tuple[int, ...],
        dtype: DType,
    ) -> Tensor:
        """The elements of a view as a packing lays them out, in `shape`."""
        storage = storage_of(dtype, self._f16)
        return self._packed(x, packing, args, shape, dtype, storage)

    def _packed(
        self,
        x: Tensor,
        packing: str,
        args: tuple[int, ...],
        shape: tuple[int, ...],
        dtype: DType,
        storage: Storage,
    ) -> Tensor:
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
        store = self._store(source, view, packing, args, shape, storage)
        numel = math.prod(shape)
        return Tensor(shape, dtype, numel, storage, row_major(shape), store)

    def _store(
        self,
        source: ConstantSource,
        view: View | None,
        packing: str,
        args: tuple[int, ...],
        shape: tuple[int, ...],
        storage: Storage,
    ) -> Store:
        part = _as_wanted(source.parts, (view, packing, args), storage)
        if part is not None:
            source = ConstantSource(part.data_key, part.dtype, part.shape)
            view, packing, args = None, "", ()
        data = content_name(source.key, source.dtype, source.shape, storage)
        if source.parts:
            data += str([(p.view, p.packing, p.packing_args) for p in source.parts])
        key = f"{data}{view or ''}|{packing}{args or ''}" if view or packing else data
        if key not in self.entries:
            size = buffer_bytes(math.prod(shape), storage)
            content = (source.key, source.dtype, storage, source.shape)
            constant = Constant(-1, *content, view, packing, args, source.parts)
            self.entries[key] = (Store(Role.CONSTANT, size, key), constant)
        return self.entries[key][0]


def _as_wanted(
    parts: Sequence[Part],
    wanted: tuple[View | None, str, tuple[int, ...]],
    storage: Storage,
) -> Part | None:
    """The part that is what a kernel binds as it is, if there is one."""
    for part in parts:
        found = (part.view, part.packing, part.packing_args)
        if found == wanted and is_converted(part.dtype, storage):
            return part
    return None


def content_name(key: str, dtype: DType, shape: Sequence[int], storage: Storage) -> str:
    """What a buffer with all elements of named data, in this storage, is called."""
    return f"{key}|{dtype.label}{list(shape)}|{storage.value}|"
