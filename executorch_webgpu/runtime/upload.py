"""Constants from a program's named data to GPU buffers.

Enters: a plan's Constant and the program's bytes, which are read in place. Leaves: the
buffer's content, in the layout (`plan/host_packing.py`) and the storage type that the
kernels read. The upload goes in pieces, each finished before the next begins, because
wgpu holds a copy of what is in flight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..errors import InvalidBlob, MissingData
from ..ir.dtypes import to_storage
from ..plan import host_packing
from ..plan.plan import Constant
from .device import Device, GpuBuffer

# Named data by key; None if there is none. What is returned is a buffer that is
# given back to ExecuTorch when nothing refers to it.
GetData = Callable[[str], Any]

# Bytes of the program that one write converts. Small pieces are also the fastest.
_PIECE = 4 << 20


def upload(
    device: Device, buffer: GpuBuffer, constant: Constant, get_data: GetData, name: str
) -> None:
    """Fills the buffer of a constant; `name` is the method's, for errors."""
    if not constant.data_key:
        return
    lent = get_data(constant.data_key)
    if lent is None:
        raise MissingData(
            f"{name}: named data {constant.data_key!r} must exist; is its"
            " .ptd file loaded?"
        )
    data = _elements(memoryview(lent), constant)
    with device.errors(f"{name}: upload of {constant.data_key}"):
        for offset, piece in _pieces(data, constant):
            device.write(buffer, offset, piece)
            device.finish()


def _elements(raw: memoryview, constant: Constant) -> np.ndarray:
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
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides))
    if 0 not in shape and not 0 <= offset <= last < flat.size:
        raise InvalidBlob(
            f"view of {constant.data_key!r} must lie in {flat.size} elements,"
            f" got {offset} to {last}"
        )
    steps = [stride * flat.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps, writeable=False)


def _pieces(data: np.ndarray, constant: Constant) -> Iterator[tuple[int, np.ndarray]]:
    """(offset, bytes) of what to upload, converted a piece at a time."""
    if constant.packing:
        data = host_packing.pack(constant.packing, data, constant.packing_args)
    flat = np.ascontiguousarray(data).reshape(-1)
    # A packing may give words that are not elements any more.
    is_raw = flat.dtype != constant.dtype.numpy
    offset = 0
    count = _PIECE // flat.itemsize
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
