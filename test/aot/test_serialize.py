"""A graph as bytes: equal after reading, and every damage is noticed."""

from __future__ import annotations

import struct

import pytest

from executorch_webgpu import ir
from executorch_webgpu.errors import InvalidBlob
from executorch_webgpu.ir import serialize
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


def test_an_op_of_another_version_says_what_to_do(graph):
    graph.calls[0].op = "webgpu.of_old"
    with pytest.raises(InvalidBlob, match=r"webgpu\.of_old; .*export it again"):
        Planner(graph, AOT_CAPS).upper_bound()
