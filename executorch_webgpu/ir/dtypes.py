"""Data types: what a tensor is to ExecuTorch and how the GPU stores it.

The numbers of `DType` are ExecuTorch's ScalarType codes, which are torch's.
WGSL storage has no 8-, 16- or 64-bit integers and no bool, so a buffer holds
one of three element types (`Storage`); values are converted at the boundary,
and an int64 that does not fit int32 is an error, never a wrap.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from ..errors import InvalidBlob


class Storage(enum.Enum):
    """The element type of a GPU buffer, spelled as in WGSL."""

    F32 = "f32"
    F16 = "f16"
    I32 = "i32"

    @property
    def size(self) -> int:
        return 2 if self is Storage.F16 else 4

    @property
    def numpy(self) -> np.dtype[Any]:
        return _STORAGE_NUMPY[self]


_STORAGE_NUMPY: dict[Storage, np.dtype[Any]] = {
    Storage.F32: np.dtype(np.float32),
    Storage.F16: np.dtype(np.float16),
    Storage.I32: np.dtype(np.int32),
}


class DType(enum.IntEnum):
    """A tensor's type as the user sees it; the values are ScalarType codes."""

    UINT8 = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    FLOAT16 = 5
    FLOAT32 = 6
    FLOAT64 = 7
    BOOL = 11
    BFLOAT16 = 15

    def __bool__(self) -> bool:
        # uint8 is 0: `dtype or other` would take it for no type at all.
        raise TypeError("a DType is neither true nor false; compare with None")

    @property
    def is_float(self) -> bool:
        return self in (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64, DType.BFLOAT16)

    @property
    def is_int(self) -> bool:
        """An integer type; bool is not one."""
        return not self.is_float and self is not DType.BOOL

    @property
    def size(self) -> int:
        """Bytes of one element outside the GPU."""
        return _SIZE[self]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The type of the bytes outside the GPU; bfloat16 shows as its bits."""
        return _NUMPY[self]

    @property
    def label(self) -> str:
        return self.name.lower()


_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.UINT8: np.dtype(np.uint8),
    DType.INT8: np.dtype(np.int8),
    DType.INT16: np.dtype(np.int16),
    DType.INT32: np.dtype(np.int32),
    DType.INT64: np.dtype(np.int64),
    DType.FLOAT16: np.dtype(np.float16),
    DType.FLOAT32: np.dtype(np.float32),
    DType.FLOAT64: np.dtype(np.float64),
    DType.BOOL: np.dtype(np.bool_),
    DType.BFLOAT16: np.dtype(np.uint16),
}
_SIZE = {dtype: kind.itemsize for dtype, kind in _NUMPY.items()}

# float64 is absent: a GPU would round it, so such a node stays on the CPU.
SUPPORTED = frozenset(DType) - {DType.FLOAT64}


def storage_of(dtype: DType, has_f16: bool = True) -> Storage:
    """How a buffer holds `dtype`; without shader-f16, halves are held as f32."""
    if dtype is DType.FLOAT16:
        return Storage.F16 if has_f16 else Storage.F32
    if dtype.is_float:
        return Storage.F32
    return Storage.I32


def is_converted(dtype: DType, storage: Storage) -> bool:
    """Whether every player can make the elements of a buffer of those of a type."""
    if dtype is DType.FLOAT16:
        return storage is not Storage.I32
    return dtype in SUPPORTED and storage is storage_of(dtype)


def to_storage(data: np.ndarray, dtype: DType, storage: Storage) -> np.ndarray:
    """Host values of `dtype` as the GPU stores them; no copy if they are equal."""
    if dtype is DType.BFLOAT16:
        return (data.astype(np.uint32) << 16).view(np.float32)
    if dtype is DType.INT64:
        low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
        bad = data[(data < low) | (data > high)]
        if bad.size:
            raise InvalidBlob(f"int64 values must fit int32, got {int(bad.flat[0])}")
    return data.astype(storage.numpy, copy=False)
