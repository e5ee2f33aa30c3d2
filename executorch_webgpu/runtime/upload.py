"""Constants from a program's named data to GPU buffers.

Enters: a plan's Constant and the program's bytes, which are read in place. Leaves: the
buffer's content, in the layout (`plan/host_packing.py`) and the storage type that the
kernels read. The upload goes in pieces, each finished before the next begins, because
wgpu holds a copy of what is in flight. The data is hashed while it is uploaded, in a
thread of its own if it is large, and has to be what its key says.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..errors import InvalidBlob, MissingData
from ..ir.dtypes import DType, to_storage
from ..ir.named_data import content_key
from ..plan import host_packing
from ..plan.plan import Constant
from ..plan.tensor import reach
from .device import Device, GpuBuffer

# Named data by key; None if there is none. What is returned is a buffer that is
# given back to ExecuTorch when nothing refers to it.
GetData = Callable[[str], Any]

# Bytes of the program that one write converts. Small pieces are also the fastest.
_PIECE = 4 << 20


class Uploader:
    """The constants of one method.

    With `is_verified`, data must be what its key is the hash of; it is hashed once,
    however many layouts of it are uploaded.
    """

    def __init__(self, get_data: GetData, name: str, is_verified: bool) -> None:
        self.is_verified = is_verified
        self._get_data = get_data
        self._name = name
        self._known: set[tuple[str, DType, tuple[int, ...]]] = set()

    def fill(self, device: Device, buffer: GpuBuffer, constant: Constant) -> None:
        """Uploads a constant; InvalidBlob or MissingData if its data is wrong."""
        if not constant.data_key:
            return
        lent = self._get_data(constant.data_key)
        if lent is None:
            raise MissingData(
                f"{self._name}: named data {constant.data_key!r} must exist; is its"
                " .ptd file loaded?"
            )
        raw = memoryview(lent)
        content = (constant.data_key, constant.dtype, constant.shape)
        if not self.is_verified or content in self._known:
            self._upload(device, buffer, raw, constant)
            return
        with _hashing(raw, constant) as key:
            self._upload(device, buffer, raw, constant)
            found = key()
        if found != constant.data_key:
            raise InvalidBlob(
                f"{self._name}: named data {constant.data_key!r} must have the content"
                f" that its key is the hash of, got {found!r}; the file is damaged"
            )
        self._known.add(content)

    def _upload(
        self, device: Device, buffer: GpuBuffer, raw: memoryview, constant: Constant
    ) -> None:
        data = _elements(raw, constant)
        with device.errors(f"{self._name}: upload of {constant.data_key}"):
            for offset, piece in _pieces(data, constant):
                device.write(buffer, offset, piece)
                device.finish()


@contextmanager
def _hashing(raw: memoryview, constant: Constant) -> Iterator[Callable[[], str]]:
    """Computes the key of data beside the body, if there is enough for a thread."""
    is_over = threading.Event()

    def key() -> str:
        starts = range(0, raw.nbytes, _PIECE)
        wanted = itertools.takewhile(lambda _: not is_over.is_set(), starts)
        pieces = (raw[start : start + _PIECE] for start in wanted)
        return content_key(constant.dtype, constant.shape, pieces)

    if raw.nbytes <= _PIECE:
        yield key
        return
    with ThreadPoolExecutor(1) as pool:
        hashed = pool.submit(key)
        try:
            yield hashed.result
        finally:
            is_over.set()


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
