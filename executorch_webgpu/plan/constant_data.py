"""What a plan's Constant is made of: bytes of the program -> bytes of its buffer."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..errors import InvalidBlob, MissingData
from ..ir.dtypes import to_storage
from . import host_packing
from .plan import Constant
from .tensor import reach

# Bytes of the program that are converted at a time. Small pieces are also the fastest.
PIECE = 4 << 20


def elements(raw: memoryview, constant: Constant) -> np.ndarray:
    """The constant's elements as the program has them, without a copy."""
    expected = math.prod(constant.shape) * constant.dtype.size
    if raw.nbytes != expected:
        raise MissingData(
            f"named data {constant.data_key!r} must have {expected} bytes,"
            f" got {raw.nbytes}"
        )
    flat = np.frombuffer(raw, constant.dtype.numpy)
    if constant.view is None:
        return flat.reshape(constant.shape)
    shape, strides, offset = constant.view
    if 0 in shape:
        return flat[:0].reshape(shape)
    lowest, highest = reach(shape, strides, offset)
    # A negative extent would turn the ends around.
    if min(shape, default=1) < 0 or lowest < 0 or highest >= flat.size:
        raise InvalidBlob(
            f"view of {constant.data_key!r} must lie in {flat.size} elements,"
            f" got {lowest} to {highest}"
        )
    # The stride of a single element is never taken, and may be any number.
    steps = [s * flat.itemsize if n > 1 else 0 for n, s in zip(shape, strides)]
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps, writeable=False)


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
