"""A reader of flatbuffers from files that may be anybody's, as csrc/player/flat.cpp is.

Every access is compared with the bytes, and no more items are visited than there are
bytes: offsets may point at one subtree from many places, and would make a small file a
large one. The generated code does neither: it takes an offset before the first byte for
one from the end, and cuts a text short that goes beyond it. Fields are numbered as in
the schema.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, TypeVar

from ..errors import InvalidBlob

U8, I8, U16, U32, I32, U64, I64 = (Struct(f"<{code}") for code in "BbHIiQq")

R = TypeVar("R")


class Bytes:
    """The bytes, and how many items of them may still be visited."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = len(data)

    def number(self, layout: Struct, at: int) -> int:
        self.require(at, layout.size)
        found: int = layout.unpack_from(self._data, at)[0]
        return found

    def follow(self, at: int) -> int:
        """Where the object is that an offset at `at` refers to."""
        return at + self.number(U32, at)

    def take(self, at: int, count: int, items: int) -> bytes:
        """The `count` bytes at `at`, which count as so many items."""
        self.require(at, count)
        self._left -= items
        if self._left < 0:
            _refuse(f"more items than its {len(self._data)} bytes")
        return self._data[at : at + count]

    def require(self, at: int, count: int) -> None:
        if not 0 <= at <= len(self._data) - count:
            _refuse(f"{count} bytes at {at} of {len(self._data)}")


class Table:
    """A table at a place in the bytes."""

    def __init__(self, flat: Bytes, at: int) -> None:
        self._flat = flat
        self._at = at
        self._vtable = at - flat.number(I32, at)
        self._size = flat.number(U16, self._vtable)
        flat.take(self._vtable, self._size, 1)

    def number(self, field: int, layout: Struct, fallback: int = 0) -> int:
        at = self._find(field)
        return self._flat.number(layout, at) if at else fallback

    def flag(self, field: int) -> bool:
        return self.number(field, U8) != 0

    def text(self, field: int) -> str:
        """ "" if there is none."""
        at = self._find(field)
        return self._text(self._flat.follow(at)) if at else ""

    def texts(self, field: int) -> tuple[str, ...]:
        flat = self._flat
        at, count = self._vector(field, 4)
        flat.take(at, 0, count)
        places = range(at, at + 4 * count, 4)
        return tuple(self._text(flat.follow(place)) for place in places)

    def tables(self, field: int, make: Callable[[Table], R]) -> tuple[R, ...]:
        flat = self._flat
        at, count = self._vector(field, 4)
        places = range(at, at + 4 * count, 4)
        return tuple(make(Table(flat, flat.follow(place))) for place in places)

    def numbers(self, field: int, layout: Struct) -> tuple[int, ...]:
        return tuple(number for (number,) in self.structs(field, layout))

    def structs(self, field: int, layout: Struct) -> list[tuple[Any, ...]]:
        at, count = self._vector(field, layout.size)
        data = self._flat.take(at, count * layout.size, count)
        return list(layout.iter_unpack(data))

    def _find(self, field: int) -> int:
        """0 if it is absent."""
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return 0
        offset = self._flat.number(U16, self._vtable + entry)
        return self._at + offset if offset else 0

    def _vector(self, field: int, size: int) -> tuple[int, int]:
        """Where its first element is, and how many there are."""
        found = self._find(field)
        if not found:
            return 0, 0
        at = self._flat.follow(found)
        count = self._flat.number(U32, at)
        self._flat.require(at + 4, count * size)
        return at + 4, count

    def _text(self, at: int) -> str:
        length = self._flat.number(U32, at)
        data = self._flat.take(at + 4, length, length)
        try:
            return data.decode()
        except UnicodeDecodeError:
            _refuse(f"a text that is not UTF-8 at {at}")
            raise


def root(flat: Bytes, identifier: bytes) -> Table:
    """The root; InvalidBlob unless the file has the four characters of `identifier`."""
    found = flat.take(4, 4, 0)
    if found != identifier:
        raise InvalidBlob(f"plans must have schema {identifier!r}, got {found!r}")
    return Table(flat, flat.follow(0))


def _refuse(text: str) -> None:
    raise InvalidBlob(f"plans must follow their schema, got {text}")
