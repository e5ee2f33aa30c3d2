"""ir.Graph to the delegate's bytes and back.

The bytes are a 16-byte header (magic, format, length, CRC-32) and a flatbuffer
(`schema.fbs`). The checksum finds damage before anything is parsed. A file that was
made to do harm has a good one, and flatbuffers has no verifier in Python, so the reader
trusts no offset and no length. What the graph says is checked by `verify.py`.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import flatbuffers

from .. import ir
from ..errors import InvalidBlob
from ._schema import schema_generated as fb
from .dtypes import DType

MAGIC = b"EWGB"
FORMAT = 1
WRITER = "executorch-webgpu 0.1.0"
IDENTIFIER = b"EWG1"
MAX_BYTES = 1 << 28
MAX_NESTING = 8  # of lists in an argument
_HEADER = struct.Struct("<4sIII")
_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)

T = TypeVar("T")
K = TypeVar("K", int, str)


def write(graph: ir.Graph) -> bytes:
    root = fb.GraphT()
    root.format = FORMAT
    root.writer = WRITER
    root.symbols = [_symbol(name, *span) for name, span in graph.symbols.items()]
    root.values = [_value(value) for value in graph.values]
    root.calls = [_call(call) for call in graph.calls]
    root.inputs = graph.inputs
    root.outputs = graph.outputs
    root.mutations = [_mutation(*pair) for pair in graph.mutations.items()]
    builder = flatbuffers.Builder(4096)
    builder.Finish(root.Pack(builder), file_identifier=IDENTIFIER)
    body = bytes(builder.Output())
    return _HEADER.pack(MAGIC, FORMAT, len(body), zlib.crc32(body)) + body


def read(blob: memoryview | bytes) -> ir.Graph:
    """The graph in `blob`; InvalidBlob says what is wrong with it."""
    if len(blob) < _HEADER.size:
        raise InvalidBlob(
            f"delegate blob must have at least {_HEADER.size} bytes, got {len(blob)}"
        )
    magic, version, length, checksum = _HEADER.unpack_from(blob)
    if magic != MAGIC:
        raise InvalidBlob(f"delegate blob must start with {MAGIC!r}, got {magic!r}")
    if not 1 <= version <= FORMAT:
        raise InvalidBlob(
            f"delegate blob must have format {FORMAT} or older, got {version};"
            " upgrade executorch-webgpu or export again"
        )
    if length > MAX_BYTES:
        raise InvalidBlob(
            f"delegate blob must have at most {MAX_BYTES} bytes, got {length}"
        )
    body = bytes(blob[_HEADER.size : _HEADER.size + length])
    if len(body) != length:
        raise InvalidBlob(f"delegate blob must have {length} bytes, got {len(body)}")
    if zlib.crc32(body) != checksum:
        raise InvalidBlob(
            f"delegate blob must have checksum {checksum:#010x},"
            f" got {zlib.crc32(body):#010x}; the file is damaged"
        )
    try:
        return _Reader(body).graph()
    except (struct.error, IndexError, TypeError, ValueError) as error:
        raise InvalidBlob(
            f"delegate blob must follow its schema, got {error} in {length} bytes"
        ) from error


def _symbol(name: str, low: int, high: int) -> Any:
    symbol = fb.SymbolT()
    symbol.name, symbol.low, symbol.high = name, low, high
    return symbol


def _mutation(state: int, value: int) -> Any:
    mutation = fb.MutationT()
    mutation.state, mutation.value = state, value
    return mutation


def _value(value: ir.Value) -> Any:
    packed = fb.ValueT()
    packed.name = value.name
    packed.dtype = int(value.dtype)
    packed.shape = [str(dim) for dim in value.shape]
    packed.bound = list(value.bound)
    packed.dimOrder = list(value.dim_order)
    packed.isInt = value.is_int
    packed.symbol = value.symbol
    packed.dataKey = value.data_key
    packed.state = value.state
    return packed


def _call(call: ir.Call) -> Any:
    packed = fb.CallT()
    packed.op = call.op
    packed.args = [_arg(arg) for arg in call.args]
    packed.outputs = call.outputs
    packed.post = [_step(step) for step in call.post]
    packed.result = -1 if call.result is None else int(call.result)
    return packed


def _step(step: ir.Step) -> Any:
    packed = fb.StepT()
    packed.op = step.op
    packed.args = [_arg(arg) for arg in step.args]
    packed.dtype = int(step.dtype)
    return packed


def _arg(arg: ir.Arg) -> Any:
    kinds = fb.ArgKind
    packed = fb.ArgT()
    match arg:
        case None:
            packed.kind = kinds.None_
        case ir.Ref(id=value):
            packed.kind, packed.i = kinds.Ref, value
        case ir.Local(step=step):
            packed.kind, packed.i = kinds.Local, step
        case ir.Expr(text=text):
            packed.kind, packed.s = kinds.Expr, text
        case DType():
            packed.kind, packed.i = kinds.DType, int(arg)
        case bool():
            packed.kind, packed.i = kinds.Bool, int(arg)
        case int():
            packed.kind, packed.i = kinds.Int, arg
        case float():
            packed.kind, packed.f = kinds.Float, arg
        case str():
            packed.kind, packed.s = kinds.Str, arg
        case list():
            packed.kind, packed.items = kinds.List, [_arg(item) for item in arg]
    return packed


class _Reader:
    """Walks an untrusted flatbuffer.

    What `write` makes is a tree, each item of which has bytes of its own. So a walk
    that meets more items than there are bytes is one among shared subtrees, whose
    number may grow exponentially with the size of the file.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._left = len(body)

    def graph(self) -> ir.Graph:
        identifier = self._body[4:8]
        if identifier != IDENTIFIER:
            raise InvalidBlob(
                f"delegate blob must have schema {IDENTIFIER!r}, got {identifier!r}"
            )
        root = fb.Graph.GetRootAs(self._body)
        symbols = self._items(root.Symbols, root.SymbolsLength())
        values = self._items(root.Values, root.ValuesLength())
        calls = self._items(root.Calls, root.CallsLength())
        mutations = self._items(root.Mutations, root.MutationsLength())
        return ir.Graph(
            values=[self._value(value) for value in values],
            calls=[self._call(call) for call in calls],
            inputs=self._items(root.Inputs, root.InputsLength()),
            outputs=self._items(root.Outputs, root.OutputsLength()),
            mutations=_unique("state", ((m.State(), m.Value()) for m in mutations)),
            symbols=_unique(
                "symbol", ((self._text(s.Name()), (s.Low(), s.High())) for s in symbols)
            ),
            is_loaded=True,
        )

    def _value(self, packed: Any) -> ir.Value:
        dims = self._items(packed.Shape, packed.ShapeLength())
        return ir.Value(
            name=self._text(packed.Name()),
            dtype=_dtype(packed.Dtype()),
            shape=tuple(_dim(self._text(dim)) for dim in dims),
            bound=tuple(self._items(packed.Bound, packed.BoundLength())),
            dim_order=tuple(self._items(packed.DimOrder, packed.DimOrderLength())),
            is_int=packed.IsInt(),
            symbol=self._text(packed.Symbol()),
            data_key=self._text(packed.DataKey()),
            state=self._text(packed.State()),
        )

    def _call(self, packed: Any) -> ir.Call:
        steps = self._items(packed.Post, packed.PostLength())
        return ir.Call(
            op=self._text(packed.Op()),
            args=self._args(packed.Args, packed.ArgsLength()),
            outputs=self._items(packed.Outputs, packed.OutputsLength()),
            post=[self._step(step) for step in steps],
            result=None if packed.Result() < 0 else _dtype(packed.Result()),
        )

    def _step(self, packed: Any) -> ir.Step:
        args = self._args(packed.Args, packed.ArgsLength())
        return ir.Step(self._text(packed.Op()), args, _dtype(packed.Dtype()))

    def _args(
        self, get: Callable[[int], Any], length: int, depth: int = 0
    ) -> list[ir.Arg]:
        if depth > MAX_NESTING:
            raise InvalidBlob(
                f"lists of an argument must be nested at most {MAX_NESTING} deep,"
                " got a deeper one"
            )
        return [self._arg(packed, depth) for packed in self._items(get, length)]

    def _arg(self, packed: Any, depth: int) -> ir.Arg:
        kinds = fb.ArgKind
        match packed.Kind():
            case kinds.None_:
                return None
            case kinds.Ref:
                return ir.Ref(packed.I())
            case kinds.Local:
                return ir.Local(packed.I())
            case kinds.Expr:
                return ir.Expr(self._text(packed.S()))
            case kinds.DType:
                return _dtype(packed.I())
            case kinds.Bool:
                return bool(packed.I())
            case kinds.Int:
                return int(packed.I())
            case kinds.Float:
                return float(packed.F())
            case kinds.Str:
                return self._text(packed.S())
            case kinds.List:
                return self._args(packed.Items, packed.ItemsLength(), depth + 1)
        raise InvalidBlob(f"argument kind must be known, got {packed.Kind()}")

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
                f"delegate blob must have no more items than its {len(self._body)}"
                " bytes, got one that repeats them"
            )


def _dtype(number: int) -> DType:
    try:
        return DType(number)
    except ValueError:
        raise InvalidBlob(f"data type must be known, got {number}") from None


def _dim(text: str) -> ir.Dim:
    return int(text) if _NUMBER.fullmatch(text) else text


def _unique(kind: str, pairs: Iterable[tuple[K, T]]) -> dict[K, T]:
    made: dict[K, T] = {}
    for key, item in pairs:
        if key in made:
            raise InvalidBlob(f"each {kind} must be declared once, got {key!r} twice")
        made[key] = item
    return made
