"""What a plan's Constant is made of: bytes of the program -> bytes of its buffer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from ..errors import InvalidBlob, MissingData
from ..ir.dtypes import DType, to_storage
from . import host_packing
from .plan import Constant, Part, View
from .tensor import reach

# How many elements a constant may have for each that its parts hold. Other backends pad
# weights, and what pads them is in no part.
MOST_PADDED = 2

GetBytes = Callable[[str], memoryview]  # of named data by key

# Bytes of the program that are converted at a time. Small pieces are also the fastest.
PIECE = 4 << 20


def contents(constant: Constant) -> Iterator[tuple[str, DType, tuple[int, ...]]]:
    """The named data that a constant is made of, each as its key has it: key, type and
    shape."""
    for each in constant.parts or (constant,):
        yield each.data_key, each.dtype, each.shape


def elements(get_bytes: GetBytes, constant: Constant) -> np.ndarray:
    """The constant's elements as the program has them; without a copy, unless the file
    holds them in parts."""
    if constant.parts:
        flat = joined(get_bytes, constant.parts, constant.dtype, constant.shape)
    else:
        flat = _stored(get_bytes, constant)
    if constant.view is None:
        return flat.reshape(constant.shape)
    return _seen(flat, constant.view, constant.data_key)


def joined(
    get_bytes: GetBytes, parts: tuple[Part, ...], dtype: DType, shape: tuple[int, ...]
) -> np.ndarray:
    """All elements of a constant, in a line, from the parts that hold them."""
    flat = np.zeros(math.prod(shape), dtype.numpy)
    for part in parts:
        where = _seen(flat, part.view, part.data_key) if part.view else flat
        seen = part.view[0] if part.view else shape
        data = _stored(get_bytes, part).reshape(part.shape)
        made = host_packing.unpack(part.packing, data, seen, part.packing_args)
        with np.errstate(invalid="ignore"):  # not what export has put there
            where[...] = made.reshape(where.shape).astype(dtype.numpy)
    return flat


def _stored(get_bytes: GetBytes, data: Constant | Part) -> np.ndarray:
    """Named data, in a line."""
    raw = get_bytes(data.data_key)
    expected = math.prod(data.shape) * data.dtype.size
    if raw.nbytes != expected:
        raise MissingData(
            f"named data {data.data_key!r} must have {expected} bytes, got {raw.nbytes}"
        )
    flat = np.frombuffer(raw, data.dtype.numpy)
    flat.flags.writeable = False
    return flat


def _seen(flat: np.ndarray, view: View, key: str) -> np.ndarray:
    """Elements through a strided view, which must lie in them."""
    shape, strides, offset = view
    if 0 in shape:
        return flat[:0].reshape(shape)
    lowest, highest = reach(shape, strides, offset)
    # A negative extent would turn the ends around.
    if min(shape, default=1) < 0 or lowest < 0 or highest >= flat.size:
        raise InvalidBlob(
            f"view of {key!r} must lie in {flat.size} elements,"
            f" got {lowest} to {highest}"
        )
    # The stride of a single element is never taken, and may be any number.
    steps = [s * flat.itemsize if n > 1 else 0 for n, s in zip(shape, strides)]
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps)


def pieces(data: np.ndarray, constant: Constant) -> Iterator[tuple[int, np.ndarray]]:
    """(offset, bytes) of what to upload, converted a piece at a time."""
    if constant.packing:
        data = host_packing.pack(constant.packing, data, constant.packing_args)
    flat = np.ascontiguousarray(data).reshape(-1)
    # A packing may give words that are not elements any more.
    is_raw = flat.dtype != constant.dtype.numpy
    offset = 0
    count = PIECE // flat.itemsize
    for start in range(0, flat.size, count):
        piece = flat[start : start + count]
        if not is_raw:
            piece = to_storage(piece, constant.dtype, constant.storage)
        piece = padded(piece.view(np.uint8))
        yield offset, piece
        offset += piece.size


def padded(piece: np.ndarray) -> np.ndarray:
    """Bytes with zeros up to a multiple of four: WebGPU copies whole words."""
    missing = -piece.size % 4
    return np.pad(piece, (0, missing)) if missing else piece
