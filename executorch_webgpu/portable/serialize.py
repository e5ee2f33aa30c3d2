"""Plans to the second section of a delegate's bytes, and back.

The section follows the graph's, which is padded to `ALIGNMENT`, and has a header of its
own: magic, format, length, CRC-32. Readers of the graph do not see it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import flatbuffers

from ..errors import InvalidBlob
from ..ir.dtypes import DType, Storage
from ..plan.plan import Role
from ..plan.size_code import OPERATORS
from ._schema import plans_generated as fb
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
_GRAPH_LENGTH = struct.Struct("<8xI")

# In the order of the schema's enums.
_OPERATORS = ("+", "-", "*", "//", "%", "ceil", "<", "==")
_ACCESS = ("read", "write", "uniform")
_ROLES = (Role.CONSTANT, Role.STATE, Role.INPUT, Role.OUTPUT, Role.SCRATCH, Role.STATUS)
_STORAGES = (Storage.F32, Storage.F16, Storage.I32)
assert set(_OPERATORS) == OPERATORS.keys()

T = TypeVar("T")
R = TypeVar("R")


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
    (length,) = _GRAPH_LENGTH.unpack_from(data)
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
    if body[4:8] != IDENTIFIER:
        raise InvalidBlob(f"plans must have schema {IDENTIFIER!r}, got {body[4:8]!r}")
    try:
        return _Reader(body).plans()
    except (struct.error, IndexError, TypeError, ValueError) as error:
        raise InvalidBlob(
            f"plans must follow their schema, got {error} in {length} bytes"
        ) from error


class _Writer:
    """Tables, by the generated code for objects."""

    def plans(self, plans: Plans) -> bytes:
        root = fb.PlansT()
        root.format, root.writer = FORMAT, plans.writer
        root.symbols = [self._symbol(each) for each in plans.symbols]
        root.literals = list(plans.literals)
        root.code = [self._operation(each) for each in plans.code]
        root.lines = list(plans.lines)
        root.kernels = [self._kernel(each) for each in plans.kernels]
        root.buffers = [self._buffer(each) for each in plans.buffers]
        root.constants = [self._constant(each) for each in plans.constants]
        root.ports = [self._port(each) for each in plans.ports]
        root.dispatches = [self._dispatch(each) for each in plans.dispatches]
        root.profiles = [self._profile(each) for each in plans.profiles]
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(root.Pack(builder), file_identifier=IDENTIFIER)
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


class _Reader:
    """Walks an untrusted flatbuffer: as the graph's reader, it visits no more items
    than there are bytes."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._left = len(body)

    def plans(self) -> Plans:
        root = fb.Plans.GetRootAs(self._body)
        return Plans(
            self._rows(root, "Symbols", self._symbol),
            self._rows(root, "Literals", int),
            self._rows(root, "Code", self._operation),
            self._rows(root, "Lines", self._text),
            self._rows(root, "Kernels", self._kernel),
            self._rows(root, "Buffers", self._buffer),
            self._rows(root, "Constants", self._constant),
            self._rows(root, "Ports", self._port),
            self._rows(root, "Dispatches", self._dispatch),
            self._rows(root, "Profiles", self._profile),
            self._text(root.Writer()),
        )

    def _symbol(self, each: Any) -> Symbol:
        return Symbol(
            self._text(each.Name()),
            each.Low(),
            each.High(),
            each.Input(),
            each.Dim(),
            each.Divisor(),
            each.Offset(),
        )

    def _operation(self, each: Any) -> Operation:
        return _member(_OPERATORS, each.Operator()), each.Left(), each.Right()

    def _kernel(self, each: Any) -> Kernel:
        return Kernel(
            self._text(each.Label()),
            self._numbers(each, "Lines"),
            tuple(_member(_ACCESS, one) for one in self._numbers(each, "Access")),
            each.Subgroups(),
        )

    def _buffer(self, each: Any) -> Buffer:
        role = _member(_ROLES, each.Role())
        return Buffer(role, each.Size(), self._text(each.Key()))

    def _constant(self, each: Any) -> Constant:
        return Constant(
            each.Buffer(),
            self._text(each.DataKey()),
            DType(each.Dtype()),
            _member(_STORAGES, each.Storage()),
            self._numbers(each, "Shape"),
        )

    def _port(self, each: Any) -> Port:
        return Port(
            self._text(each.Name()),
            each.IsInt(),
            each.Buffer(),
            DType(each.Dtype()),
            _member(_STORAGES, each.Storage()),
            self._numbers(each, "Shape"),
            each.Value(),
            self._rows(each, "Limits", self._limit),
            self._text(each.Wanted()),
        )

    def _limit(self, each: Any) -> Limit:
        label = self._text(each.Label())
        return Limit(label, each.Add(), each.Count(), each.Length())

    def _dispatch(self, each: Any) -> Dispatch:
        x, y, z = self._numbers(each, "Groups")
        return Dispatch(
            each.Kernel(),
            self._numbers(each, "Buffers"),
            self._numbers(each, "Ranges"),
            self._numbers(each, "Params"),
            (x, y, z),
            self._text(each.Label()),
            each.Call(),
        )

    def _profile(self, each: Any) -> Profile:
        return Profile(
            self._text(each.Name()),
            each.F16(),
            each.Subgroups(),
            each.MaxStorageBuffers(),
            each.MaxBinding(),
            each.MaxBuffer(),
            each.MaxWorkgroups(),
            each.MaxInvocations(),
            each.WorkgroupMemory(),
            each.OffsetAlign(),
            self._rows(each, "Variants", self._variant),
        )

    def _variant(self, each: Any) -> Variant:
        return Variant(
            self._rows(each, "Guards", self._guard),
            self._numbers(each, "Dispatches"),
            self._numbers(each, "Inputs"),
            self._numbers(each, "Outputs"),
            each.Status(),
        )

    def _guard(self, each: Any) -> Guard:
        return Guard(each.Register(), each.Low(), each.High())

    def _rows(self, table: Any, name: str, make: Callable[[Any], R]) -> tuple[R, ...]:
        length = getattr(table, f"{name}Length")()
        self._visit(length)
        get = getattr(table, name)
        return tuple(make(get(index)) for index in range(length))

    def _numbers(self, table: Any, name: str) -> tuple[int, ...]:
        length = getattr(table, f"{name}Length")()
        self._visit(length)
        get = getattr(table, name)
        return tuple(get(index) for index in range(length))

    def _text(self, raw: bytes | None) -> str:
        self._visit(len(raw or b""))
        return (raw or b"").decode()

    def _visit(self, items: int) -> None:
        self._left -= items
        if self._left < 0:
            raise InvalidBlob(
                f"plans must have no more items than their {len(self._body)} bytes,"
                " got some that repeat them"
            )


def _member(members: Sequence[T], number: int) -> T:
    if not 0 <= number < len(members):
        raise InvalidBlob(f"plans must have known kinds, got {number}")
    return members[number]
