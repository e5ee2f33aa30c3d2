"""Constants from a program's named data to GPU buffers.

Enters: a plan's Constant and the program's bytes, which are read in place. Leaves: the
buffer's content, in the layout (`plan/host_packing.py`) and the storage type that the
kernels read. The upload goes in pieces, each finished before the next begins, because
wgpu holds a copy of what is in flight. The data is hashed while it is uploaded, by
another thread if it is worth one, and has to be what its key says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from ..errors import InvalidBlob, MissingData
from ..ir.dtypes import DType
from ..ir.named_data import content_key
from ..plan.constant_data import PIECE, contents, elements, pieces
from ..plan.plan import Constant
from . import signals
from .device import Device, GpuBuffer

# Named data by key; None if there is none. What is returned is a buffer that is
# given back to ExecuTorch when nothing refers to it.
GetData = Callable[[str], Any]

# What data is, as its key has it: the key, the type and the shape.
_Content = tuple[str, DType, tuple[int, ...]]

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
        found = {}
        for content in contents(constant):
            key = content[0]
            lent = self._get_data(key)
            if lent is None:
                raise MissingData(
                    f"{self._name}: named data {key!r} must exist; is its .ptd file"
                    " loaded?"
                )
            found[key] = memoryview(lent)
            if self.is_verified:
                self._hasher.add(content, found[key])
        self._upload(device, buffer, found, constant)
        self._hasher.catch_up(_BEHIND)

    def verify(self) -> None:
        """Raises InvalidBlob if what was uploaded is not what its key says."""
        self._hasher.catch_up(0)

    def give_up(self) -> None:
        """Stops hashing, after a failure: the bytes are ExecuTorch's again."""
        self._hasher.stop()
        self._hasher = _Hasher(self._name)

    def _upload(
        self,
        device: Device,
        buffer: GpuBuffer,
        found: Mapping[str, memoryview],
        constant: Constant,
    ) -> None:
        data = elements(found.__getitem__, constant)
        with device.errors(f"{self._name}: upload of {constant.data_key}"):
            for offset, piece in pieces(data, constant):
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
        if raw.nbytes >= (PIECE if self._threads else _WORTH_A_THREAD):
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
        for start in range(0, raw.nbytes, PIECE):
            if self._is_over:
                return
            signals.check()
            yield raw[start : start + PIECE]
