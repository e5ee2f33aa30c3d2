"""The constants of a Vulkan file: where their bytes are -> bytes by content.

Enters: named data under the file's own keys, or parts of the delegate's bytes. Leaves:
the same under the keys that this package gives constants, hashes of what they are, so
that they are held to these and shared like those of any file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import ir
from ..errors import InvalidBlob, MissingData
from ..ir.dtypes import DType
from ..ir.named_data import content_key
from .adapt import Transform
from .blob import VkConstant, VkTensor

GetData = Callable[[str], Any]


class ConstantData:
    """The bytes of a file's constants, by the keys that this package gives them."""

    def __init__(self, get_data: GetData) -> None:
        self._get_data = get_data
        # Named data, which is lent again whenever it is asked for, or bytes; and how
        # many of them are the constant's.
        self._found: dict[str, tuple[str | memoryview, int]] = {}
        # Constants that are made of others: key, type and shape of these, and how.
        self._transformed: dict[str, tuple[str, DType, tuple[int, ...], Transform]] = {}

    def add(self, name: str, item: VkTensor, source: VkConstant) -> str:
        """The key of a tensor's content; MissingData if that is not there."""
        where = source.key if source.data is None else source.data
        size = math.prod(item.dims) * item.dtype.size
        data = self._bytes(where)
        if data is None or data.nbytes < size:
            got = "none" if data is None else f"{data.nbytes}"
            raise MissingData(
                f"Vulkan constant of {name}: data {source.key!r} must have {size}"
                f" bytes, got {got}; is its .ptd file loaded?"
            )
        key = content_key(item.dtype, item.dims, [data[:size]])
        self._found[key] = where, size
        return key

    def transformed(
        self, value: ir.Value, dtype: DType, transform: Transform
    ) -> ir.Value:
        """A constant made of another one's elements."""
        try:
            made = self._made(value.data_key, value.dtype, value.bound, transform)
        except (IndexError, TypeError, ValueError) as error:
            raise InvalidBlob(
                f"Vulkan constant {value.name} must be as its reader has it, got"
                f" {value.dtype.label}{list(value.bound)}: {error}"
            ) from None
        if made.dtype != dtype.numpy:
            raise InvalidBlob(
                f"Vulkan constant {value.name} must be of {dtype.label}, got"
                f" {value.dtype.label}"
            )
        key = content_key(dtype, made.shape, [made.tobytes()])
        self._transformed[key] = value.data_key, value.dtype, value.bound, transform
        return ir.Value(value.name, dtype, made.shape, made.shape, data_key=key)

    def get(self, key: str) -> memoryview | None:
        """The bytes of a constant; None if they are not there any more."""
        if key in self._transformed:
            return memoryview(self._made(*self._transformed[key]).tobytes())
        where, size = self._found.get(key, ("", 0))
        data = self._bytes(where)
        return None if data is None else data[:size]

    def _made(
        self, key: str, dtype: DType, shape: tuple[int, ...], transform: Transform
    ) -> np.ndarray:
        data = self.get(key)
        if data is None:
            raise MissingData(f"Vulkan constant {key!r} must still exist")
        elements = np.frombuffer(data, dtype.numpy).reshape(shape)
        return np.ascontiguousarray(transform(elements))

    def _bytes(self, where: str | memoryview) -> memoryview | None:
        if isinstance(where, memoryview):
            return where
        lent = self._get_data(where)
        return None if lent is None else memoryview(lent)
