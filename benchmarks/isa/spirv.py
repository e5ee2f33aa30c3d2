"""What a dispatch has to know of a kernel's SPIR-V."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER_WORDS = 5
_EXECUTION_MODE, _LOCAL_SIZE = 16, 17
_DECORATE, _BUILT_IN, _NUM_WORKGROUPS = 71, 11, 24


@dataclass(frozen=True)
class Interface:
    """Threads of a workgroup, and whether the kernel may ask for the grid."""

    threads: tuple[int, int, int]
    uses_grid: bool


def _instructions(code: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    words = struct.unpack(f"<{len(code) // 4}I", code)
    at = _HEADER_WORDS
    while at < len(words):
        size = words[at] >> 16
        yield words[at] & 0xFFFF, words[at + 1 : at + size]
        at += size


def interface(code: bytes) -> Interface:
    threads, uses_grid = None, False
    for op, args in _instructions(code):
        if op == _EXECUTION_MODE and args[1] == _LOCAL_SIZE:
            threads = (args[2], args[3], args[4])
        if op == _DECORATE and args[1:] == (_BUILT_IN, _NUM_WORKGROUPS):
            uses_grid = True
    if threads is None:
        raise ValueError("SPIR-V: the size of a workgroup must be a constant, got none")
    return Interface(threads, uses_grid)
