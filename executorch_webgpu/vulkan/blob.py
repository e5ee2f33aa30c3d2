"""The bytes of a Vulkan delegate -> its graph as plain data.

Enters: anybody's bytes. Leaves: values by id and calls over them, not yet checked
against each other, and where the bytes of each constant are. As in `ir/serialize.py`,
no offset and no length is trusted: each lies in the bytes, and no more items are
visited than there are bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from ..errors import InvalidBlob
from ..ir.dtypes import DType
from ..ir.expressions import cut
from ._schema import vk_graph_generated as fb

MAGIC = b"VH00"
IDENTIFIER = b"VK00"
MAX_BYTES = 1 << 28  # of the graph, without constants
# Padding, magic, size of the header, offset and size of the graph and of the constants.
_HEADER = struct.Struct("<4s4sHIIIQ")
_NAMED = (1 << 64) - 1  # the offset of a constant that is named data

T = TypeVar("T")


@dataclass(frozen=True)
class VkTensor:
    """A tensor; `dims` are its largest extents."""

    dtype: DType
    boundary: DType  # of an input or an output, what it is outside of the delegate
    dims: tuple[int, ...]
    constant: int  # -1: computed


@dataclass(frozen=True)
class VkIds:
    """A list of values, by id."""

    ids: tuple[int, ...]


@dataclass(frozen=True)
class VkSymInt:
    """An integer that is known when a call is made."""


VkItem: TypeAlias = (
    "bool | int | float | str | list[Any] | VkTensor | VkIds | VkSymInt | None"
)


@dataclass(frozen=True)
class VkCall:
    """An op, and the values that it takes; the last is its result."""

    name: str
    args: tuple[int, ...]


@dataclass(frozen=True)
class VkConstant:
    """The bytes of a constant: named data, or a part of the delegate's bytes."""

    key: str
    data: memoryview | None


@dataclass(frozen=True)
class VkGraph:
    """A delegate's graph; calls, inputs and outputs are ids of values."""

    values: list[VkItem]
    calls: list[VkCall]
    inputs: list[int]
    outputs: list[int]
    constants: list[VkConstant]


def read(blob: memoryview | bytes) -> VkGraph:
    """The graph in `blob`; InvalidBlob says what is wrong with it."""
    raw = memoryview(blob)
    if len(raw) < _HEADER.size:
        raise InvalidBlob(
            f"Vulkan blob must have at least {_HEADER.size} bytes, got {len(raw)}"
        )
    _, magic, size, start, length, data_start, data_length = _HEADER.unpack_from(raw)
    if magic != MAGIC or size != _HEADER.size:
        raise InvalidBlob(
            f"Vulkan blob must start with {MAGIC!r} and {_HEADER.size},"
            f" got {magic!r} and {size}"
        )
    if length > MAX_BYTES:
        raise InvalidBlob(
            f"Vulkan blob must have a graph of at most {MAX_BYTES} bytes, got {length}"
        )
    for what, end in (("graph", start + length), ("data", data_start + data_length)):
        if end > len(raw):
            raise InvalidBlob(
                f"Vulkan blob must have {end} bytes for its {what}, got {len(raw)}"
            )
    data = raw[data_start : data_start + data_length]
    try:
        return _Reader(bytes(raw[start : start + length]), data).graph()
    except (struct.error, IndexError, TypeError, ValueError) as error:
        raise InvalidBlob(
            f"Vulkan blob must follow its schema, got {cut(str(error))} in"
            f" {length} bytes"
        ) from error


class _Reader:
    """Walks an untrusted flatbuffer."""

    def __init__(self, body: bytes, data: memoryview) -> None:
        self._body = body
        self._data = data
        self._left = len(body)

    def graph(self) -> VkGraph:
        identifier = self._body[4:8]
        if identifier != IDENTIFIER:
            raise InvalidBlob(
                f"Vulkan blob must have schema {IDENTIFIER!r}, got {identifier!r}"
            )
        root = fb.VkGraph.GetRootAs(self._body)
        if root.ShadersLength():
            raise InvalidBlob(
                f"Vulkan blob must have no shaders, got {root.ShadersLength()}"
            )
        values = self._items(root.Values, root.ValuesLength())
        calls = self._items(root.Calls, root.CallsLength())
        constants = self._items(root.Constants, root.ConstantsLength())
        return VkGraph(
            values=[self._value(value) for value in values],
            calls=[self._call(call) for call in calls],
            inputs=self._items(root.Inputs, root.InputsLength()),
            outputs=self._items(root.Outputs, root.OutputsLength()),
            constants=[self._constant(constant) for constant in constants],
        )

    def _call(self, packed: Any) -> VkCall:
        args = self._items(packed.Args, packed.ArgsLength())
        return VkCall(self._text(packed.Name()), tuple(args))

    def _constant(self, packed: Any) -> VkConstant:
        offset, length = packed.Offset(), packed.Length()
        if offset == _NAMED:
            return VkConstant(self._text(packed.Key()), None)
        if offset + length > len(self._data):
            raise InvalidBlob(
                f"Vulkan blob must have {offset + length} bytes of constants,"
                f" got {len(self._data)}"
            )
        return VkConstant("", self._data[offset : offset + length])

    def _value(self, packed: Any) -> VkItem:
        kind, table = packed.ValueType(), packed.Value()
        found = _KINDS.get(kind)
        if found is None or table is None:
            raise InvalidBlob(f"Vulkan value must be of a known kind, got {kind}")
        made = found()
        made.Init(table.Bytes, table.Pos)
        match made:
            case fb.VkNull():
                return None
            case fb.VkInt():
                return int(made.Value())
            case fb.VkDouble():
                return float(made.Value())
            case fb.VkBool():
                return bool(made.Value())
            case fb.VkTensor():
                return self._tensor(made)
            case fb.VkValueList():
                return VkIds(tuple(self._items(made.Items, made.ItemsLength())))
            case fb.VkString():
                return self._text(made.Value())
            case fb.VkSymInt():
                return VkSymInt()
        # Lists of ints, of doubles and of bools.
        return self._items(made.Items, made.ItemsLength())

    def _tensor(self, packed: Any) -> VkTensor:
        dtype = _dtype(packed.Dtype())
        outside = packed.Boundary()
        return VkTensor(
            dtype=dtype,
            boundary=dtype if outside == fb.VkType.Unset else _dtype(outside),
            dims=tuple(self._items(packed.Dims, packed.DimsLength())),
            constant=max(packed.Constant(), -1),
        )

    def _items(self, get: Callable[[int], T], length: int) -> list[T]:
        self._visit(length)
        return [get(index) for index in range(length)]

    def _text(self, raw: bytes | None) -> str:
        self._visit(len(raw or b""))
        return (raw or b"").decode()

    def _visit(self, items: int) -> None:
        self._left -= items
        if self._left < 0:
            raise InvalidBlob(
                f"Vulkan blob must have no more items than its {len(self._body)}"
                " bytes, got one that repeats them"
            )


_KINDS: dict[int, Callable[[], Any]] = {
    fb.VkAny.VkNull: fb.VkNull,
    fb.VkAny.VkInt: fb.VkInt,
    fb.VkAny.VkDouble: fb.VkDouble,
    fb.VkAny.VkBool: fb.VkBool,
    fb.VkAny.VkTensor: fb.VkTensor,
    fb.VkAny.VkIntList: fb.VkIntList,
    fb.VkAny.VkDoubleList: fb.VkDoubleList,
    fb.VkAny.VkBoolList: fb.VkBoolList,
    fb.VkAny.VkValueList: fb.VkValueList,
    fb.VkAny.VkString: fb.VkString,
    fb.VkAny.VkSymInt: fb.VkSymInt,
}

_DTYPES = {
    fb.VkType.Bool: DType.BOOL,
    fb.VkType.UInt8: DType.UINT8,
    fb.VkType.Int8: DType.INT8,
    fb.VkType.Int32: DType.INT32,
    fb.VkType.Float16: DType.FLOAT16,
    fb.VkType.Float32: DType.FLOAT32,
    fb.VkType.Float64: DType.FLOAT64,
    fb.VkType.Int64: DType.INT64,
}


def _dtype(number: int) -> DType:
    found = _DTYPES.get(number)
    if found is None:
        raise InvalidBlob(f"Vulkan data type must be known, got {number}")
    return found
