"""Constants from a program's named data to GPU buffers.

Enters: a plan's Constant and the program's bytes, which are read in place. Leaves: the
buffer's content, in the layout (`plan/host_packing.py`) and the storage type that the
kernels read. The upload goes in pieces, each finished before the next begins, because
wgpu holds a copy of what is in flight. The data is hashed while it is uploaded, by
another thread if it is worth one, and has to be what its key says.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from ..errors import InvalidBlob, MissingData
from ..ir.dtypes import DType, to_storage
from ..ir.named_data import content_key
from ..plan import host_packing
from ..plan.plan import Constant
from ..plan.tensor import reach
from . import signals
from .device import Device, GpuBuffer

# Named data by key; None if there is none. What is returned is a buffer that is
# given back to ExecuTorch when nothing refers to it.
GetData = Callable[[str], Any]

# What data is, as its key has it: the key, the type and the shape.
_Content = tuple[str, DType, tuple[int, ...]]

# Bytes of the program that one write converts. Small pieces are also the fastest.
_PIECE = 4 << 20

# Bytes that take longer to hash than to hand to another thread.
_WORTH_A_THREAD = 32 << 10

# Bytes that may be uploaded and not yet hashed. Where ExecuTorch does not map the file,
# they are copies.
_BEHIND = 16 << 20

# Seconds.
_SIGNAL_PERIOD = 0.05

# Hash what other threads upload. Shared by all loads.
_hashers = ThreadPoolExecutor(4, "executorch-webgpu-hash")


class Uploader:
    """The constants of one method.

    With `is_verified`, data must be what its key is the hash of. It is hashed once,
    however many layouts of it are uploaded, by another thread while this one goes on:
    `verify` waits for that, and until then nobody else may be given the buffers.
    """

    def __init__(self, get_data: GetData, name: str, is_verified: bool) -> None:
        self.is_verified = is_verified
        self._get_data = get_data
        self._name = name
        self._hasher = _Hasher(name)

    def fill(self, device: Device, buffer: GpuBuffer, constant: Constant) -> None:
        """Uploads a constant; InvalidBlob or MissingData if its data, or that of one
        before it, is wrong."""
        if not constant.data_key:
            return
        lent = self._get_data(constant.data_key)
        if lent is None:
            raise MissingData(
                f"{self._name}: named data {constant.data_key!r} must exist; is its"
                " .ptd file loaded?"
            )
        raw = memoryview(lent)
        if self.is_verified:
            content = (constant.data_key, constant.dtype, constant.shape)
            self._hasher.add(content, raw)
        self._upload(device, buffer, raw, constant)
        self._hasher.catch_up(_BEHIND)

    def verify(self) -> None:
        """Raises InvalidBlob if what was uploaded is not what its key says."""
        self._hasher.catch_up(0)

    def give_up(self) -> None:
        """Stops hashing, after a failure: the bytes are ExecuTorch's again."""
        self._hasher.stop()
        self._hasher = _Hasher(self._name)

    def _upload(
        self, device: Device, buffer: GpuBuffer, raw: memoryview, constant: Constant
    ) -> None:
        data = _elements(raw, constant)
        with device.errors(f"{self._name}: upload of {constant.data_key}"):
            for offset, piece in _pieces(data, constant):
                device.write(buffer, offset, piece)
                device.finish()


class _Hasher:
    """Holds data to its keys, in other threads while this one goes on.

    Each takes what is waiting until there is nothing: to hand over every one of a
    model's hundreds of constants costs more than most of their hashes.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._met: set[_Content] = set()
        self._waiting: deque[tuple[_Content, memoryview]] = deque()
        self._behind: dict[_Content, int] = {}  # bytes of what is not hashed yet
        self._wrong: InvalidBlob | None = None
        self._is_over = False
        self._threads: list[Future[None]] = []

    def add(self, content: _Content, raw: memoryview) -> None:
        """Has data hashed, if it was not yet."""
        if content in self._met:
            return
        self._met.add(content)
        self._behind[content] = raw.nbytes
        self._waiting.append((content, raw))
        self._threads = [each for each in self._threads if not each.done()]
        if raw.nbytes >= (_PIECE if self._threads else _WORTH_A_THREAD):
            self._threads.append(_hashers.submit(self._hash_waiting))

    def catch_up(self, most: int) -> None:
        """Helps if `most` bytes or more are left, until they are fewer, or none;
        InvalidBlob for what is not as its key says."""
        if self._left() < most:
            return
        while self._left() >= most and self._hash_next():
            pass
        if self._left() >= most:
            while wait(self._threads, _SIGNAL_PERIOD).not_done:
                signals.check()
            self._hash_waiting()
        if self._wrong is not None:
            raise self._wrong

    def stop(self) -> None:
        self._is_over = True
        self._waiting.clear()
        for each in self._threads:
            each.cancel()
        wait(self._threads)

    def _left(self) -> int:
        return sum(list(self._behind.values()))

    def _hash_waiting(self) -> None:
        while self._hash_next():
            pass

    def _hash_next(self) -> bool:
        """Whether anything was waiting, which is hashed now."""
        try:
            content, raw = self._waiting.popleft()
        except IndexError:
            return False
        key, dtype, shape = content
        try:
            found = content_key(dtype, shape, self._pieces(raw))
        except BaseException:
            # The thread that uploads must meet it, too.
            self._waiting.append((content, raw))
            raise
        if found != key:
            self._wrong = InvalidBlob(
                f"{self._name}: named data {key!r} must have the content that its key"
                f" is the hash of, got {found!r}; the file is damaged"
            )
        del self._behind[content]
        return True

    def _pieces(self, raw: memoryview) -> Iterator[memoryview]:
        for start in range(0, raw.nbytes, _PIECE):
            if self._is_over:
                return
            signals.check()
            yield raw[start : start + _PIECE]


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
