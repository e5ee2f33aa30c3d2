"""A graph as bytes: equal after reading, and every damage is noticed."""

from __future__ import annotations

import struct
import zlib

import flatbuffers
import pytest

from executorch_webgpu import ir
from executorch_webgpu.errors import InvalidBlob
from executorch_webgpu.ir import serialize
from executorch_webgpu.ir._schema import schema_generated as fb
from executorch_webgpu.ir.dtypes import DType
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.planner import Planner


@pytest.fixture
def graph() -> ir.Graph:
    graph = ir.Graph(symbols={"s0": (1, 64)})
    x = graph.add(ir.Value("x", DType.FLOAT16, ("s0", 3), (64, 3), (1, 0)))
    w = graph.add(ir.Value("w", DType.INT64, (3,), (3,), data_key="k"))
    cache = graph.add(ir.Value("c", DType.FLOAT32, (), (), state="cache"))
    n = graph.add(ir.Value("n", DType.INT64, (), (), is_int=True, symbol="s0 * 2"))
    y = graph.add(ir.Value("y", DType.FLOAT32, ("s0 * 2",), (128,)))
    args: list[ir.Arg] = [
        ir.Ref(x), None, True, 7, -(2**40), 0.5, float("-inf"), "tanh",
        ir.Expr("s0 + 1"), DType.BOOL, [ir.Ref(w), None, [1, 2], []],
    ]  # fmt: skip
    step = ir.Step("aten.add.Tensor", [ir.Local(-1), ir.Ref(w), 1], DType.FLOAT32)
    graph.calls.append(ir.Call("aten.any.op", args, [y], [step], DType.FLOAT16))
    graph.inputs, graph.outputs, graph.mutations = [x, n], [y], {cache: y}
    return graph


def test_a_graph_survives_the_way_through_bytes(graph):
    assert serialize.read(memoryview(serialize.write(graph))) == graph


def test_a_truncated_blob_is_refused_at_every_length(graph):
    blob = serialize.write(graph)
    for length in range(0, len(blob), 7):
        with pytest.raises(InvalidBlob, match="blob must"):
            serialize.read(blob[:length])


def test_every_flipped_bit_is_noticed(graph):
    blob = serialize.write(graph)
    for position in range(0, len(blob), 5):
        damaged = bytearray(blob)
        damaged[position] ^= 1 << (position % 8)
        with pytest.raises(InvalidBlob):
            serialize.read(damaged)


def test_a_newer_format_says_what_to_do(graph):
    blob = bytearray(serialize.write(graph))
    struct.pack_into("<I", blob, 4, serialize.FORMAT + 1)
    with pytest.raises(InvalidBlob, match="format 1 or older, got 2; upgrade"):
        serialize.read(blob)


def _signed(body: bytes) -> bytes:
    """A body with a good header: damage that was meant."""
    header = (serialize.MAGIC, serialize.FORMAT, len(body), zlib.crc32(body))
    return struct.pack("<4sIII", *header) + body


@pytest.mark.parametrize("word", [1, 0x7FFFFFFF, 0xFFFFFF00])
def test_no_offset_or_length_is_trusted(graph, word):
    body = serialize.write(graph)[16:]
    refused = 0
    for position in range(0, len(body), 4):
        wild = bytearray(body)
        struct.pack_into("<I", wild, position, word)
        try:
            serialize.read(_signed(bytes(wild)))
        except InvalidBlob:
            refused += 1
    assert refused > 20


def test_lists_that_share_their_items_are_not_unrolled():
    """30 ** 6 items in less than a kilobyte."""
    builder = flatbuffers.Builder()
    fb.ArgStart(builder)
    item = fb.ArgEnd(builder)
    for _ in range(6):
        fb.ArgStartItemsVector(builder, 30)
        for _ in range(30):
            builder.PrependUOffsetTRelative(item)
        items = builder.EndVector()
        fb.ArgStart(builder)
        fb.ArgAddKind(builder, fb.ArgKind.List)
        fb.ArgAddItems(builder, items)
        item = fb.ArgEnd(builder)
    fb.CallStartArgsVector(builder, 1)
    builder.PrependUOffsetTRelative(item)
    args = builder.EndVector()
    fb.CallStart(builder)
    fb.CallAddArgs(builder, args)
    call = fb.CallEnd(builder)
    fb.GraphStartCallsVector(builder, 1)
    builder.PrependUOffsetTRelative(call)
    calls = builder.EndVector()
    fb.GraphStart(builder)
    fb.GraphAddCalls(builder, calls)
    builder.Finish(fb.GraphEnd(builder), file_identifier=serialize.IDENTIFIER)
    with pytest.raises(InvalidBlob, match=r"no more items than its \d+ bytes, got"):
        serialize.read(_signed(bytes(builder.Output())))


def _nested(depth: int) -> ir.Arg:
    return [_nested(depth - 1)] if depth else []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda body: body[:4] + b"EWG2" + body[8:], "schema b'EWG1', got b'EWG2'"),
        (lambda body: body[:6], "schema b'EWG1', got b'EW'"),
        (lambda body: body[:8], "must follow its schema"),
    ],
)
def test_a_body_of_another_kind_is_refused(graph, change, expected):
    with pytest.raises(InvalidBlob, match=expected):
        serialize.read(_signed(change(serialize.write(graph)[16:])))


def test_format_0_and_a_length_beyond_the_limit_are_refused(graph):
    blob = bytearray(serialize.write(graph))
    struct.pack_into("<II", blob, 4, 0, len(blob) - 16)
    with pytest.raises(InvalidBlob, match="format 1 or older, got 0"):
        serialize.read(blob)
    struct.pack_into("<II", blob, 4, 1, serialize.MAX_BYTES + 1)
    with pytest.raises(InvalidBlob, match="at most 268435456 bytes, got 268435457"):
        serialize.read(blob)


def test_lists_nest_only_so_deep(graph):
    graph.calls[0].args = [_nested(serialize.MAX_NESTING - 1)]
    serialize.read(serialize.write(graph))
    graph.calls[0].args = [_nested(serialize.MAX_NESTING)]
    with pytest.raises(InvalidBlob, match="nested at most 8 deep"):
        serialize.read(serialize.write(graph))


@pytest.mark.parametrize("text", ["--5", "\u0665", "9" * 19, "+5", "5 ", "-"])
def test_only_plain_digits_are_a_number(graph, text):
    graph.values[0].shape = (text, 3)
    assert serialize.read(serialize.write(graph)).values[0].shape == (text, 3)


def test_an_op_of_another_version_says_what_to_do(graph):
    graph.calls[0].op = "webgpu.of_old"
    with pytest.raises(InvalidBlob, match=r"webgpu\.of_old; .*export it again"):
        Planner(graph, AOT_CAPS).upper_bound()
