"""Mutations of the plans that a program carries: of their rows, and of their bytes.

Rows are changed at random places, whatever they are: an item of a table is changed,
doubled, removed or exchanged, a number is another one of the same kind, or at the end
of its type. Numbers are those that the format can hold, so that all can be written.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random
from struct import Struct
from typing import Any

from executorch_webgpu.ir.dtypes import DType
from executorch_webgpu.plan.plan import Role
from executorch_webgpu.plan.size_code import OPERATORS
from executorch_webgpu.portable import flat, serialize
from executorch_webgpu.portable.plans import Kernel, Plans

from . import values
from .mutate_bytes import HEADER

RowsMutation = Callable[[Random, Plans], Plans]
BytesMutation = Callable[[Random, bytearray], None]

# The numbers of the schema that are not uint.
_RANGES = {
    **dict.fromkeys(("low", "high", "divisor", "offset", "literals"), 64),
    **dict.fromkeys(("dim", "buffer", "status"), 32),
}
_LONG = ("size", "max_binding", "max_buffer")
_ACCESS = ("read", "write", "uniform")
_ROLES = tuple(role for role in Role if role is not Role.PARAMS)
# Where kernels are run: what their loops count with stays as it is, or is small, so
# that few take longer than they may.
_NOT_RUN = ("literals", "code", "params", "lines")


def _number(rng: Random, old: int, name: str, owner: str) -> int:
    """Another number of the type that the schema has for it."""
    if name in _RANGES and not (name == "buffer" and owner == "Constant"):
        low, high = -(1 << _RANGES[name] - 1), (1 << _RANGES[name] - 1) - 1
    else:
        is_long = name in _LONG or (name, owner) == ("shape", "Constant")
        low, high = 0, (1 << (64 if is_long else 32)) - 1
    kind = rng.randrange(4)
    if kind == 0:
        made = old + rng.choice((-4, -1, 1, 4))
    elif kind == 1:
        made = rng.choice((old * 2, old // 2, -old, old * 256))
    elif kind == 2:
        made = rng.randrange(12)
    else:
        made = rng.choice((low, high, 1 << 31, (1 << 31) - 1, 1 << 53, (1 << 53) + 1))
    return min(max(made, low), high)


def _items(rng: Random, items: tuple[Any, ...], name: str, owner: str) -> Any:
    """A table or list with one item changed, exchanged, doubled or removed."""
    made = list(items)
    kind = rng.randrange(9) if made else 9
    at = rng.randrange(len(made) or 1)
    if kind <= 4:
        made[at] = _changed(rng, made[at], name, owner)
    elif kind == 5:
        other = rng.randrange(len(made))
        made[at], made[other] = made[other], made[at]
    elif kind == 6:
        made[at] = rng.choice(made)
    elif kind == 7 and name != "groups":
        del made[at]
    elif kind == 8 and name != "groups":
        made[at:at] = [rng.choice(made)] * rng.choice((1, 1, 1, 20, 300))
    elif name in ("ranges", "params", "buffers", "shape", "dispatches"):
        made = [rng.randrange(12) for _ in range(rng.choice((1, 2, 8)))]
    return tuple(made)


def _changed(rng: Random, value: Any, name: str, owner: str = "") -> Any:
    """The same kind of value, with one change somewhere in it."""
    match value:
        case bool():
            return not value
        case DType():
            return values.dtype(rng)
        case Role():
            return rng.choice(_ROLES)
        case enum.Enum():
            return rng.choice(tuple(type(value)))
        case int():
            return _number(rng, value, name, owner)
        case str() if name == "access":
            return rng.choice(_ACCESS)
        case str() if name == "lines":
            return rng.choice(("", f"{value} nothing", "}", f"// {value}"))
        case str():
            return rng.choice((value[::-1], value + value, values.text(rng)))
        case (str(), int(), int()) if name == "code":
            operator, left, right = value
            chosen = rng.randrange(3)
            if chosen == 0:
                operator = rng.choice(tuple(OPERATORS))
            elif chosen == 1:
                left = _number(rng, left, "left", owner)
            else:
                right = _number(rng, right, "right", owner)
            return operator, left, right
        case tuple():
            return _items(rng, value, name, owner)
    field = rng.choice(dataclasses.fields(value)).name
    return _with(rng, value, field)


def _with(rng: Random, row: Any, field: str) -> Any:
    made = _changed(rng, getattr(row, field), field, type(row).__name__)
    return replace(row, **{field: made})


def table(rng: Random, plans: Plans) -> Plans:
    """A change somewhere, each table as often as any other."""
    return _with(rng, plans, rng.choice(dataclasses.fields(plans)).name)


def number(rng: Random, plans: Plans) -> Plans:
    """Registers of a row are others that exist: the plan is well-formed, and wrong."""
    count = len(plans.symbols) + len(plans.literals) + len(plans.code)
    name = rng.choice(("dispatches", "ports"))
    rows = list(getattr(plans, name))
    if not rows or not count:
        return plans
    at = rng.randrange(len(rows))
    fields = ("ranges", "params", "groups") if name == "dispatches" else ("shape",)
    field = rng.choice(fields)
    numbers = list(getattr(rows[at], field))
    if field == "ranges" and not numbers:
        numbers = [0] * 2 * len(rows[at].buffers)
    if numbers:
        numbers[rng.randrange(len(numbers))] = rng.randrange(count)
    rows[at] = replace(rows[at], **{field: tuple(numbers)})
    return replace(plans, **{name: tuple(rows)})


def index(rng: Random, plans: Plans) -> Plans:
    """A dispatch has another kernel or other buffers that exist, a port another
    buffer."""
    dispatches, ports = list(plans.dispatches), list(plans.ports)
    if not plans.buffers or not dispatches or not ports:
        return plans
    buffer = rng.randrange(len(plans.buffers))
    if rng.random() < 0.3:
        at = rng.randrange(len(ports))
        ports[at] = replace(ports[at], buffer=buffer)
    else:
        at = rng.randrange(len(dispatches))
        row = dispatches[at]
        if rng.random() < 0.3:
            row = replace(row, kernel=rng.randrange(len(plans.kernels) or 1))
        elif row.buffers:
            buffers = list(row.buffers)
            buffers[rng.randrange(len(buffers))] = buffer
            row = replace(row, buffers=tuple(buffers))
        dispatches[at] = row
    return replace(plans, dispatches=tuple(dispatches), ports=tuple(ports))


def literal(rng: Random, plans: Plans) -> Plans:
    """A number is another small one, wherever it is used."""
    literals = list(plans.literals)
    if literals:
        literals[rng.randrange(len(literals))] = rng.randint(1, 64)
    return replace(plans, literals=tuple(literals))


def sizes(rng: Random, plans: Plans) -> Plans:
    """Buffers are smaller or larger than what they are for."""
    buffers = list(plans.buffers)
    if buffers:
        at = rng.randrange(len(buffers))
        size = rng.choice((4, 16, 64, buffers[at].size * 2, 1 << 20))
        buffers[at] = replace(buffers[at], size=size)
    return replace(plans, buffers=tuple(buffers))


def keys(rng: Random, plans: Plans) -> Plans:
    """A buffer or a constant has another one's key, or its own in another's place."""
    buffers, constants = list(plans.buffers), list(plans.constants)
    if constants and rng.random() < 0.5:
        at = rng.randrange(len(constants))
        key = rng.choice((rng.choice(constants).data_key, "", "nothing"))
        constants[at] = replace(constants[at], data_key=key)
    elif buffers:
        at = rng.randrange(len(buffers))
        buffers[at] = replace(buffers[at], key=rng.choice(buffers).key)
    return replace(plans, buffers=tuple(buffers), constants=tuple(constants))


def broken_kernel(rng: Random, plans: Plans) -> Plans:
    """A text that does not compile: without a line that opens or closes something, or
    with a word too many."""
    lines = list(plans.lines)
    open_ones = [at for at, line in enumerate(lines) if "{" in line or "}" in line]
    if not open_ones:
        return plans
    at = rng.choice(open_ones)
    lines[at] = rng.choice(("", f"{lines[at]} nothing", "\x1b[31m", "x" * 5000))
    return replace(plans, lines=tuple(lines))


def other_access(rng: Random, plans: Plans) -> Plans:
    """A kernel's bindings are declared otherwise than its text has them."""
    kernels = list(plans.kernels)
    if kernels:
        at = rng.randrange(len(kernels))
        kernel: Kernel = _with(rng, kernels[at], "access")
        kernels[at] = kernel
    return replace(plans, kernels=tuple(kernels))


def run_table(rng: Random, plans: Plans) -> Plans:
    """As `table`, without what kernels count their rounds with."""
    fields = [f.name for f in dataclasses.fields(plans) if f.name not in _NOT_RUN]
    name = rng.choice(fields)
    made: Plans = _with(rng, plans, name)
    if name == "kernels":
        texts = [each.lines for each in plans.kernels]
        if [each.lines for each in made.kernels] != texts:
            return plans
    return made


ROWS: tuple[RowsMutation, ...] = (
    *(table, table, table, table, number, number, index, index),
    *(literal, sizes, keys, broken_kernel, other_access),
)
RUN_ROWS: tuple[RowsMutation, ...] = (
    *(run_table, run_table, number, index, index, literal, sizes, sizes, keys),
    *(keys, broken_kernel, other_access),
)


# -- bytes -------------------------------------------------------------------------


class _Spy(flat.Bytes):
    """Writes down every place at which a reader looks, and how many bytes it takes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.places: dict[int, int] = {}

    def number(self, layout: Struct, at: int) -> int:
        self.places[at] = layout.size
        return super().number(layout, at)

    def take(self, at: int, count: int, items: int) -> bytes:
        # Of a list, its elements: what is as large as several has no text.
        if items and count in (items * 4, items * 8, items * 12, items * 24):
            size = 8 if count == items * 8 else 4
            self.places.update({at + n: size for n in range(0, count, size)})
        return super().take(at, count, items)


@cache
def _places(body: bytes) -> tuple[tuple[int, int], ...]:
    spy = _Spy(body)
    serialize.plans_of(spy)
    return tuple(sorted(spy.places.items()))


def patched(rng: Random, body: bytearray, honest: bytes) -> None:
    """A number that the reader looks at is another one: a field, an element, a length,
    an offset, or where a table's fields are."""
    places = _places(honest)
    at, size = rng.choice(places)
    if at + size > len(body):
        return
    old = int.from_bytes(body[at : at + size], "little")
    kind = rng.randrange(5)
    if kind == 0:
        new = old + rng.choice((-4, -1, 1, 4))
    elif kind == 1:
        new = rng.randrange(16)
    elif kind == 2:
        alike = [place for place, other in places if other == size]
        other = rng.choice(alike)
        new = int.from_bytes(honest[other : other + size], "little")
    elif kind == 3:
        new = rng.choice((old << 8, old * 2, old ^ 1 << rng.randrange(8 * size)))
    else:
        top = 1 << 8 * size
        new = rng.choice((0, top - 1, top // 2, top // 2 - 1, 1 << 31, 1 << 53))
    body[at : at + size] = (new % (1 << 8 * size)).to_bytes(size, "little")


def sealed(front: bytes, body: bytes) -> bytes:
    """A delegate's bytes with the header that belongs to the plans."""
    checksum = zlib.crc32(body)
    return front + HEADER.pack(serialize.MAGIC, 1, len(body), checksum) + body


def header(rng: Random, blob: bytearray, start: int) -> None:
    """The header of the plans is another's, newer, or of other lengths; or all ends
    somewhere."""
    kind = rng.randrange(5)
    if kind == 0:
        del blob[rng.randrange(len(blob)) :]
    elif kind == 1:
        struct.pack_into("<I", blob, start + 4, rng.choice((0, 2, 9, 1 << 31)))
    elif kind == 2:
        blob[start : start + 4] = rng.choice((b"EWGB", b"EWGQ", bytes(4)))
    elif kind == 3:
        length = rng.choice((0, 4, 8, len(blob), (1 << 28) + 1, (1 << 32) - 1))
        struct.pack_into("<I", blob, start + 8, length)
    else:
        at = start + rng.randrange(len(blob) - start)
        blob[at] ^= 1 << rng.randrange(8)
