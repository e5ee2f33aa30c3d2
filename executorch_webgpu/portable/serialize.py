"""Plans to the second section of a delegate's bytes, and back.

The section follows the graph's, which is padded to `ALIGNMENT`, and has a header of its
own: magic, format, length, CRC-32. Readers of the graph do not see it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any, TypeVar

import flatbuffers

from ..errors import InvalidBlob
from ..ir.dtypes import DType, Storage
from ..plan.plan import Role
from ..plan.size_code import OPERATORS
from ._schema import plans_generated as fb
from .flat import I8, I32, I64, U8, U32, U64, Bytes, Table, root
from .plans import (
    Buffer,
    Constant,
    Dispatch,
    Guard,
    Kernel,
    Limit,
    Operation,
    Plans,
    Port,
    Profile,
    Symbol,
    Variant,
)

MAGIC = b"EWGP"
FORMAT = 1
IDENTIFIER = b"EWP1"
ALIGNMENT = 16
MAX_BYTES = 1 << 28
_HEADER = struct.Struct("<4sIII")
_GRAPH_MAGIC = b"EWGB"
_INSTRUCTION = struct.Struct("<B3xII")
_GUARD = struct.Struct("<I4xqq")

# In the order of the schema's enums.
_OPERATORS = ("+", "-", "*", "//", "%", "ceil", "<", "==")
_ACCESS = ("read", "write", "uniform")
_ROLES = (Role.CONSTANT, Role.STATE, Role.INPUT, Role.OUTPUT, Role.SCRATCH, Role.STATUS)
_STORAGES = (Storage.F32, Storage.F16, Storage.I32)
assert set(_OPERATORS) == OPERATORS.keys()
_DTYPES = frozenset(map(int, DType))

T = TypeVar("T")


def append(graph: bytes, plans: Plans) -> bytes:
    """A delegate's bytes: the graph's, and behind them the plans'."""
    body = _Writer().plans(plans)
    header = _HEADER.pack(MAGIC, FORMAT, len(body), zlib.crc32(body))
    return graph + bytes(-len(graph) % ALIGNMENT) + header + body


def section(blob: memoryview | bytes) -> memoryview | None:
    """What follows the graph in a delegate's bytes; None if nothing does."""
    data = memoryview(blob)
    if data.nbytes < _HEADER.size:
        return None
    magic, _, length, _ = _HEADER.unpack_from(data)
    if magic != _GRAPH_MAGIC:
        return None
    start = -(-(_HEADER.size + length) // ALIGNMENT) * ALIGNMENT
    return data[start:] if start < data.nbytes else None


def read(data: memoryview) -> Plans:
    """The plans in a section, of which nothing is checked but that they can be read;
    InvalidBlob says what is wrong."""
    if data.nbytes < _HEADER.size:
        raise InvalidBlob(
            f"plans must have at least {_HEADER.size} bytes, got {data.nbytes}"
        )
    magic, version, length, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise InvalidBlob(f"plans must start with {MAGIC!r}, got {magic!r}")
    if not 1 <= version <= FORMAT:
        raise InvalidBlob(
            f"delegate's plans must have format {FORMAT} or older, got {version};"
            " upgrade executorch-webgpu or export again"
        )
    body = bytes(data[_HEADER.size : _HEADER.size + length])
    if len(body) != length or length > MAX_BYTES:
        raise InvalidBlob(f"plans must have {length} bytes, got {len(body)}")
    if zlib.crc32(body) != checksum:
        raise InvalidBlob(
            f"delegate's plans must have checksum {checksum:#010x},"
            f" got {zlib.crc32(body):#010x}; the file is damaged"
        )
    return plans_of(Bytes(body))


def plans_of(flat: Bytes) -> Plans:
    """The plans in a flatbuffer."""
    return _plans(root(flat, IDENTIFIER))


class _Writer:
    """Tables, by the generated code for objects."""

    def plans(self, plans: Plans) -> bytes:
        made = fb.PlansT()
        made.format, made.writer = FORMAT, plans.writer
        made.symbols = [self._symbol(each) for each in plans.symbols]
        made.literals = list(plans.literals)
        made.code = [self._operation(each) for each in plans.code]
        made.lines = list(plans.lines)
        made.kernels = [self._kernel(each) for each in plans.kernels]
        made.buffers = [self._buffer(each) for each in plans.buffers]
        made.constants = [self._constant(each) for each in plans.constants]
        made.ports = [self._port(each) for each in plans.ports]
        made.dispatches = [self._dispatch(each) for each in plans.dispatches]
        made.profiles = [self._profile(each) for each in plans.profiles]
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(made.Pack(builder), file_identifier=IDENTIFIER)
        return bytes(builder.Output())

    def _symbol(self, each: Symbol) -> Any:
        return _filled(fb.SymbolT(), each)

    def _operation(self, each: Operation) -> Any:
        made = fb.InstructionT()
        made.operator, made.left, made.right = _OPERATORS.index(each[0]), *each[1:]
        return made

    def _kernel(self, each: Kernel) -> Any:
        access = [_ACCESS.index(name) for name in each.access]
        return _filled(fb.KernelT(), each, access=access)

    def _buffer(self, each: Buffer) -> Any:
        return _filled(fb.BufferT(), each, role=_ROLES.index(each.role))

    def _constant(self, each: Constant) -> Any:
        storage = _STORAGES.index(each.storage)
        return _filled(fb.ConstantT(), each, dtype=int(each.dtype), storage=storage)

    def _port(self, each: Port) -> Any:
        return _filled(
            fb.PortT(),
            each,
            dtype=int(each.dtype),
            storage=_STORAGES.index(each.storage),
            limits=[_filled(fb.LimitT(), limit) for limit in each.limits],
        )

    def _dispatch(self, each: Dispatch) -> Any:
        return _filled(fb.DispatchT(), each)

    def _profile(self, each: Profile) -> Any:
        variants = [self._variant(one) for one in each.variants]
        return _filled(fb.ProfileT(), each, variants=variants)

    def _variant(self, each: Variant) -> Any:
        guards = [_filled(fb.GuardT(), guard) for guard in each.guards]
        return _filled(fb.VariantT(), each, guards=guards)


def _filled(made: Any, row: Any, **others: Any) -> Any:
    """A table with the fields of a row, which have the same names; `others` differ."""
    for name, value in vars(row).items():
        value = others.get(name, value)
        words = name.split("_")
        camel = words[0] + "".join(word.capitalize() for word in words[1:])
        assert hasattr(made, camel), name
        setattr(made, camel, list(value) if isinstance(value, tuple) else value)
    return made


def _plans(table: Table) -> Plans:
    return Plans(
        table.tables(2, _symbol),
        table.numbers(3, I64),
        tuple(map(_operation, table.structs(4, _INSTRUCTION))),
        table.texts(5),
        table.tables(6, _kernel),
        table.tables(7, _buffer),
        table.tables(8, _constant),
        table.tables(9, _port),
        table.tables(10, _dispatch),
        table.tables(11, _profile),
        table.text(1),
    )


def _symbol(table: Table) -> Symbol:
    return Symbol(
        table.text(0),
        table.number(1, I64),
        table.number(2, I64),
        table.number(3, U32),
        table.number(4, I32),
        table.number(5, I64, 1),
        table.number(6, I64),
    )


def _operation(row: tuple[int, int, int]) -> Operation:
    operator, left, right = row
    return _member(_OPERATORS, operator), left, right


def _kernel(table: Table) -> Kernel:
    return Kernel(
        table.text(0),
        table.numbers(1, U32),
        tuple(_member(_ACCESS, one) for one in table.numbers(2, U8)),
        table.flag(3),
    )


def _buffer(table: Table) -> Buffer:
    return Buffer(
        _member(_ROLES, table.number(0, U8)), table.number(1, U64), table.text(2)
    )


def _constant(table: Table) -> Constant:
    return Constant(
        table.number(0, U32),
        table.text(1),
        _dtype(table.number(2, I8)),
        _member(_STORAGES, table.number(3, U8)),
        table.numbers(4, U64),
    )


def _port(table: Table) -> Port:
    return Port(
        table.text(0),
        table.flag(1),
        table.number(2, I32, -1),
        _dtype(table.number(3, I8)),
        _member(_STORAGES, table.number(4, U8)),
        table.numbers(5, U32),
        table.number(6, U32),
        table.tables(7, _limit),
        table.text(8),
    )


def _limit(table: Table) -> Limit:
    return Limit(
        table.text(0), table.number(1, U32), table.number(2, U32), table.number(3, U32)
    )


def _dispatch(table: Table) -> Dispatch:
    groups = table.numbers(4, U32)
    if len(groups) != 3:
        raise InvalidBlob(f"plans: a grid must have 3 numbers, got {len(groups)}")
    x, y, z = groups
    return Dispatch(
        table.number(0, U32),
        table.numbers(1, U32),
        table.numbers(2, U32),
        table.numbers(3, U32),
        (x, y, z),
        table.text(5),
        table.number(6, U32),
    )


def _profile(table: Table) -> Profile:
    return Profile(
        table.text(0),
        table.flag(1),
        table.flag(2),
        table.number(3, U32),
        table.number(4, U64),
        table.number(5, U64),
        table.number(6, U32),
        table.number(7, U32),
        table.number(8, U32),
        table.number(9, U32),
        table.tables(10, _variant),
        table.flag(11),
    )


def _variant(table: Table) -> Variant:
    return Variant(
        tuple(Guard(*row) for row in table.structs(0, _GUARD)),
        table.numbers(1, U32),
        table.numbers(2, U32),
        table.numbers(3, U32),
        table.number(4, I32, -1),
    )


def _member(members: Sequence[T], number: int) -> T:
    if not 0 <= number < len(members):
        raise InvalidBlob(f"plans must have known kinds, got {number}")
    return members[number]


def _dtype(number: int) -> DType:
    if number not in _DTYPES:
        raise InvalidBlob(f"plans must have known types, got {number}")
    return DType(number)
