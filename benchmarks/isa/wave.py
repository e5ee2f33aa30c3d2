"""The registers of a wave, and what a dispatch puts into them.

A scalar register that is unknown is None; of a vector register lanes are known or not.
Operands are read as the disassembler writes them.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .alu import Lanes


class Uncountable(Exception):
    """A branch depends on something that the player does not know."""


@dataclass(frozen=True)
class Launch:
    """What a dispatch gives to its first wave."""

    threads: tuple[int, int, int]  # of a workgroup
    groups: tuple[int, int, int]
    bindings: tuple[tuple[int, bytes], ...]  # size, and the content of small ones
    uses_grid: bool  # the kernel's text asks for the number of workgroups
    wave: int  # lanes
    packs_ids: bool  # local ids are in one register, ten bits each (GFX11)
    loads_grid: bool  # the number of workgroups is behind a pointer (GFX9)


class Vector(NamedTuple):
    """A word per lane, and the mask of lanes in which it is known."""

    values: Lanes
    known: int


# Addresses of what RADV passes by pointer, and of what is bound. Descriptor sets are in
# the 4 GiB that the driver reserves for them, and a set's pointer is its low half.
_HIGH = 0xFFFF8000
_SET, _GRID, _BUFFER = 0x10000, 0x20000, 0x100
VCC, EXEC = 106, 126
_SPECIAL = {
    "vcc": VCC,
    "vcc_lo": VCC,
    "vcc_hi": VCC + 1,
    "m0": 124,
    "exec": EXEC,
    "exec_lo": EXEC,
    "exec_hi": EXEC + 1,
}
_NULL = 125
WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class Operand:
    """A register (s or v) and how many words of it, or a constant (c)."""

    file: str
    index: int
    words: int = 1


VCC_MASK, EXEC_MASK = Operand("s", VCC, 2), Operand("s", EXEC, 2)


@cache
def operand(text: str) -> Operand:
    """As the disassembler writes it; an operand that is none of ours is unknown (?)."""
    text = text.strip()
    if text in _SPECIAL:
        return Operand("s", _SPECIAL[text], 2 if text in ("vcc", "exec") else 1)
    if text == "null":
        return Operand("s", _NULL)
    if text in ("src_scc", "scc"):
        return Operand("scc", 0)
    if found := re.fullmatch(r"([sv])\[(\d+):(\d+)\]", text):
        first, last = int(found[2]), int(found[3])
        return Operand(found[1], first, last - first + 1)
    if found := re.fullmatch(r"([sv])(\d+)", text):
        return Operand(found[1], int(found[2]))
    if re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", text):
        return Operand("c", int(text, 0))
    if re.fullmatch(r"-?\d+\.\d+", text):
        return Operand("c", int(struct.unpack("<I", struct.pack("<f", float(text)))[0]))
    return Operand("?", 0)


_MODIFIERS = re.compile(r"\s+(?:[a-z_0-9]+:\S+|clamp|glc|slc|dlc|offen|idxen)\b.*$")


@cache
def operands(text: str) -> tuple[Operand, ...]:
    """Without modifiers, which the last operand would carry."""
    parts = re.split(r",\s*(?![^\[]*\])", _MODIFIERS.sub("", text))
    return tuple(operand(part) for part in parts if part)


class Wave:
    """The registers of one wave, as they are when it begins."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.lanes = launch.wave
        self.full = (1 << self.lanes) - 1
        self.scc: int | None = 0
        # Workgroup ids are zero, and so is the wave's place in the workgroup.
        self.s: list[int | None] = [0] * 128
        self._exec: int | None = 0
        self.s[2] = _SET
        if launch.uses_grid and launch.loads_grid:
            self.s[3:5] = [_GRID, _HIGH]
        elif launch.uses_grid:
            self.s[3:6] = list(launch.groups)
        width, height, depth = launch.threads
        thread = np.arange(self.lanes, dtype=np.uint32)
        wide, high = np.uint32(width), np.uint32(height)
        x, y, z = thread % wide, thread // wide % high, thread // (wide * high)
        ids = [x, y, z]
        if launch.packs_ids:
            ids = [x | y << np.uint32(10) | z << np.uint32(20)]
        self.v = {at: Vector(values, self.full) for at, values in enumerate(ids)}
        active = min(self.lanes, width * height * depth)
        self.write_scalar(EXEC_MASK, (1 << active) - 1)

    @property
    def exec(self) -> int:
        if self._exec is None:
            raise Uncountable("the mask of active lanes depends on unknown data")
        return self._exec

    def scalar(self, source: Operand) -> int | None:
        """A scalar operand as an unsigned integer of its size."""
        if source.file == "c":
            return source.index
        if source.file == "scc":
            return self.scc
        if source.file != "s":
            return None
        if source.index == _NULL:
            return 0
        total = 0
        for word in range(source.words):
            part = self.s[source.index + word]
            if part is None:
                return None
            total |= part << 32 * word
        return total

    def lane_values(self, source: Operand) -> Vector:
        if source.file == "v":
            return self.v.get(source.index, self.unknown)
        value = self.scalar(source)
        if value is None:
            return self.unknown
        return Vector(everywhere(value & WORD, self.lanes), self.full)

    @property
    def unknown(self) -> Vector:
        return Vector(everywhere(0, self.lanes), 0)

    def write_scalar(self, target: Operand, value: int | None) -> None:
        if target.index == _NULL:
            return
        for word in range(target.words):
            part = None if value is None else value >> 32 * word & WORD
            self.s[target.index + word] = part
        if target.index >= EXEC:
            mask = self.scalar(EXEC_MASK)
            self._exec = None if mask is None else mask & self.full

    def write_lanes(self, target: Operand, value: Vector) -> None:
        """Active lanes only; the others keep what they have."""
        if self.exec != self.full:
            old = self.v.get(target.index, self.unknown)
            is_active = as_lanes(self.exec, self.lanes)
            value = Vector(
                np.where(is_active, value.values, old.values),
                value.known & self.exec | old.known & ~self.exec,
            )
        self.v[target.index] = value

    def load(self, address: int, size: int) -> int | None:
        """Little-endian; None if nobody knows what is there."""
        high, low = address >> 32, address & WORD
        if high == _HIGH and low >= _GRID:
            content = struct.pack("<3I", *self.launch.groups)[low - _GRID :]
        elif high == _HIGH:
            content = self._descriptors()[low - _SET :]
        else:
            content = self.buffer(high)[low:]
        is_known = len(content) >= size
        return int.from_bytes(content[:size], "little") if is_known else None

    def buffer(self, high: int) -> bytes:
        """A buffer's content, as far as it is known, by the high word of addresses."""
        index, bindings = high - _BUFFER, self.launch.bindings
        return bindings[index][1] if 0 <= index < len(bindings) else b""

    def _descriptors(self) -> bytes:
        """Of set 0: base, size and format, which nobody looks at."""
        return b"".join(
            struct.pack("<4I", 0, _BUFFER + index, size, 0)
            for index, (size, _) in enumerate(self.launch.bindings)
        )


@lru_cache(1 << 14)
def everywhere(value: int, lanes: int) -> Lanes:
    made = np.full(lanes, value, np.uint32)
    made.flags.writeable = False
    return made


@lru_cache(1 << 14)
def as_lanes(bits: int, lanes: int) -> NDArray[np.bool_]:
    return (np.array([bits >> lane & 1 for lane in range(lanes)])).astype(bool)


def as_bits(mask: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")
