"""ir.Graph to the delegate's bytes and back.

The bytes are a 16-byte header (magic, format, length, CRC-32) and a flatbuffer
(`schema.fbs`). The checksum is there because flatbuffers has no verifier in
Python: damage is found before anything is parsed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import flatbuffers

from .. import ir
from ..errors import InvalidBlob
from ._schema import schema_generated as fb
from .dtypes import DType

MAGIC = b"EWGB"
FORMAT = 1
WRITER = "executorch-webgpu 0.1.0"
_HEADER = struct.Struct("<4sIII")


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
    builder.Finish(root.Pack(builder), file_identifier=b"EWG1")
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
    if version > FORMAT:
        raise InvalidBlob(
            f"delegate blob must have format {FORMAT} or older, got {version};"
            " upgrade executorch-webgpu or export again"
        )
    body = bytes(blob[_HEADER.size : _HEADER.size + length])
    if len(body) != length:
        raise InvalidBlob(f"delegate blob must have {length} bytes, got {len(body)}")
    if zlib.crc32(body) != checksum:
        raise InvalidBlob(
            f"delegate blob must have checksum {checksum:#010x},"
            f" got {zlib.crc32(body):#010x}; the file is damaged"
        )
    root = fb.GraphT.InitFromPackedBuf(body, 0)
    return ir.Graph(
        values=[_read_value(value) for value in root.values or []],
        calls=[_read_call(call) for call in root.calls or []],
        inputs=_ints(root.inputs),
        outputs=_ints(root.outputs),
        mutations={int(m.state): int(m.value) for m in root.mutations or []},
        symbols={_text(s.name): (int(s.low), int(s.high)) for s in root.symbols or []},
    )


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


def _read_value(packed: Any) -> ir.Value:
    dims = [_text(dim) for dim in packed.shape or []]
    return ir.Value(
        name=_text(packed.name),
        dtype=DType(packed.dtype),
        shape=tuple(int(d) if d.lstrip("-").isdigit() else d for d in dims),
        bound=tuple(_ints(packed.bound)),
        dim_order=tuple(_ints(packed.dimOrder)),
        is_int=bool(packed.isInt),
        symbol=_text(packed.symbol),
        data_key=_text(packed.dataKey),
        state=_text(packed.state),
    )


def _call(call: ir.Call) -> Any:
    packed = fb.CallT()
    packed.op = call.op
    packed.args = [_arg(arg) for arg in call.args]
    packed.outputs = call.outputs
    packed.post = [_step(step) for step in call.post]
    packed.result = -1 if call.result is None else int(call.result)
    return packed


def _read_call(packed: Any) -> ir.Call:
    return ir.Call(
        op=_text(packed.op),
        args=[_read_arg(arg) for arg in packed.args or []],
        outputs=_ints(packed.outputs),
        post=[_read_step(step) for step in packed.post or []],
        result=None if packed.result < 0 else DType(packed.result),
    )


def _step(step: ir.Step) -> Any:
    packed = fb.StepT()
    packed.op = step.op
    packed.args = [_arg(arg) for arg in step.args]
    packed.dtype = int(step.dtype)
    return packed


def _read_step(packed: Any) -> ir.Step:
    args = [_read_arg(arg) for arg in packed.args or []]
    return ir.Step(_text(packed.op), args, DType(packed.dtype))


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


def _read_arg(packed: Any) -> ir.Arg:
    kinds = fb.ArgKind
    readers: dict[int, Callable[[], ir.Arg]] = {
        kinds.None_: lambda: None,
        kinds.Ref: lambda: ir.Ref(int(packed.i)),
        kinds.Local: lambda: ir.Local(int(packed.i)),
        kinds.Expr: lambda: ir.Expr(_text(packed.s)),
        kinds.DType: lambda: DType(packed.i),
        kinds.Bool: lambda: bool(packed.i),
        kinds.Int: lambda: int(packed.i),
        kinds.Float: lambda: float(packed.f),
        kinds.Str: lambda: _text(packed.s),
        kinds.List: lambda: [_read_arg(item) for item in packed.items or []],
    }
    if packed.kind not in readers:
        raise InvalidBlob(f"argument kind must be known, got {packed.kind}")
    return readers[packed.kind]()


def _text(raw: bytes | str | None) -> str:
    return raw.decode() if isinstance(raw, bytes) else raw or ""


def _ints(raw: Any) -> list[int]:
    return [] if raw is None else [int(item) for item in raw]
