"""Mutations of a blob's flatbuffer and of named data."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from random import Random

BytesMutation = Callable[[Random, bytearray], None]
DataMutation = Callable[[Random, dict[str, bytes]], None]

# Magic, format, length, CRC-32: `executorch_webgpu/ir/serialize.py`.
HEADER = struct.Struct("<4sIII")
_WORDS = (0, 1, 4, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1)


def sealed(body: bytes) -> bytes:
    """A flatbuffer with the header that belongs to it."""
    return HEADER.pack(b"EWGB", 1, len(body), zlib.crc32(body)) + body


def bits(rng: Random, body: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 8)) if body else 0):
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)


def byte(rng: Random, body: bytearray) -> None:
    if body:
        body[rng.randrange(len(body))] = rng.randrange(256)


def word(rng: Random, body: bytearray) -> None:
    at = rng.randrange(max(1, len(body) - 4)) & ~3
    body[at : at + 4] = struct.pack("<I", rng.choice(_WORDS))


def offset(rng: Random, body: bytearray) -> None:
    """An offset points to where another one does: two tables share a part, or a table
    is inside itself, or is taken for one of another kind."""
    targets = [
        at + distance
        for at in range(0, len(body) - 4, 4)
        if 0 < (distance := struct.unpack_from("<I", body, at)[0]) < len(body) - at
    ]
    known = set(targets)
    places = [at for at in range(0, len(body) - 4, 4) if at not in known]
    if targets and places:
        at, target = rng.choice(places), rng.choice(targets)
        struct.pack_into("<I", body, at, (target - at) % 2**32)


def piece(rng: Random, body: bytearray) -> None:
    """A piece is copied to somewhere else, inserted or removed."""
    start, size = rng.randrange(len(body) or 1), rng.choice((4, 8, 16, 64, 300))
    part, to = bytes(body[start : start + size]), rng.randrange(len(body) or 1)
    chosen = rng.randrange(3)
    if chosen == 0:
        body[to : to + len(part)] = part
    elif chosen == 1:
        body[to:to] = part
    else:
        del body[start : start + size]


def length(rng: Random, body: bytearray) -> None:
    if rng.random() < 0.7:
        del body[rng.randrange(len(body) or 1) :]
    else:
        body += bytes(rng.choice((1, 4, 1000)))


BYTES: tuple[BytesMutation, ...] = (
    bits,
    bits,
    byte,
    word,
    offset,
    offset,
    piece,
    length,
)


def content(rng: Random, data: dict[str, bytes]) -> None:
    """Bytes of a constant are other ones."""
    if not data:
        return
    key = rng.choice(list(data))
    made = bytearray(data[key])
    chosen = rng.randrange(4)
    if chosen == 0:
        bits(rng, made)
    elif chosen == 1:
        made[:] = bytes([rng.choice((0, 0xFF, 0x7F))]) * len(made)
    elif chosen == 2 and made:
        made[-4:] = struct.pack("<f", float("nan"))
    else:
        made.reverse()
    data[key] = bytes(made)


def size(rng: Random, data: dict[str, bytes]) -> None:
    if data:
        key = rng.choice(list(data))
        count = rng.choice((0, 1, len(data[key]) - 1, len(data[key]) + 1, 1 << 20))
        data[key] = (data[key] + bytes(max(count, 0)))[: max(count, 0)]


def keys(rng: Random, data: dict[str, bytes]) -> None:
    """A constant is not there, or is another's."""
    if not data:
        return
    one, other = (rng.choice(list(data)) for _ in range(2))
    if rng.random() < 0.5:
        del data[one]
    else:
        data[one], data[other] = data[other], data[one]


DATA: tuple[DataMutation, ...] = (content, content, size, keys)
