"""Constants that a file holds once, as kernels of GPUs bind them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from executorch_webgpu import ir
from executorch_webgpu.errors import InvalidBlob, Unsupported
from executorch_webgpu.ir.dtypes import DType, Storage
from executorch_webgpu.ir.named_data import content_key
from executorch_webgpu.ir.signatures import ConvCodes, LaidOut
from executorch_webgpu.plan import host_packing, registry
from executorch_webgpu.plan.caps import AOT_CAPS, Caps
from executorch_webgpu.plan.constant_data import elements, joined, pieces
from executorch_webgpu.plan.load_graph import check_graph
from executorch_webgpu.plan.plan import Constant, Part
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.portable import collect
from executorch_webgpu.portable.profiles import profiles_for
from executorch_webgpu.portable.stored_constants import as_stored, laid_out, with_parts

registry.all_ops()  # loads every op, and with it the packings

CPU = replace(AOT_CAPS, is_cpu=True, subgroups=True, name="cpu")


def drawn(dtype: Any, *shape: int) -> np.ndarray:
    numbers = np.random.default_rng(0)
    if dtype is np.float32:
        return numbers.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return numbers.integers(limits.min, limits.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize(
    ("name", "data", "args"),
    [
        ("nibbles_to_words", drawn(np.uint8, 7, 20), (1, 40, 8)),
        ("nibbles_to_words", drawn(np.uint8, 7, 20), (0, 40, 20)),
        ("nibbles_to_words", drawn(np.uint8, 1, 6), (1, 12, 3)),
        ("plain_nibbles_to_words", drawn(np.int8, 5, 6), (12,)),
        ("codes_to_words", drawn(np.int8, 7, 13), (8, 13)),
        ("codes_to_words", drawn(np.int8, 8, 32), (8, 8)),
        ("group_scales", drawn(np.float32, 7, 3), (7, 3, 0)),
        ("group_scales", drawn(np.float32, 3, 7), (7, 3, 1)),
        ("group_scales", drawn(np.float32, 7), (7, 1, 0)),
        ("filter_taps", drawn(np.int8, 6, 5, 3, 2), ()),
        ("filter_taps", drawn(np.int8, 6, 4, 1, 1), ()),
        ("filter_taps", drawn(np.int8, 3, 9, 4), ()),
    ],
)
def test_what_is_packed_can_be_unpacked(
    name: str, data: np.ndarray, args: tuple[int, ...]
) -> None:
    packed = host_packing.pack(name, data, args).reshape(-1)
    found = host_packing.unpack(name, packed, data.shape, args)
    np.testing.assert_array_equal(found, data)
    with pytest.raises(InvalidBlob, match=f"must be what {name} makes of"):
        host_packing.unpack(name, packed[:-1], data.shape, args)


@pytest.mark.parametrize(
    ("data", "storage", "stored"),
    [
        (drawn(np.int8, 40), Storage.F32, DType.FLOAT32),
        (drawn(np.int8, 40), Storage.I32, DType.INT8),
        (drawn(np.int64, 40) >> 32, Storage.I32, DType.INT32),
        (drawn(np.float32, 40), Storage.F32, DType.FLOAT32),
    ],
)
def test_elements_are_stored_in_few_bytes_without_loss(
    data: np.ndarray, storage: Storage, stored: DType
) -> None:
    dtype = DType[data.dtype.name.upper()]
    constant = Constant(0, "key", dtype, storage, data.shape, (data.shape, (1,), 0))
    made, found = as_stored(data, constant)
    assert found is stored
    assert made.dtype == stored.numpy
    np.testing.assert_array_equal(made.astype(data.dtype), data)


class Stored:
    """A graph of convolutions of int8, and its data by key."""

    def __init__(self, *filters: tuple[int, ...]) -> None:
        self.graph = ir.Graph()
        self.data: dict[str, np.ndarray] = {}
        x = self.value(DType.INT8, 1, 12, 20, 24)
        self.graph.inputs = [x.id]
        for shape in filters:
            weights = self.constant(drawn(np.int8, *shape))
            scales = self.constant(drawn(np.float32, shape[0]))
            groups = 12 // shape[1]
            edge = shape[2] // 2
            y = self.value(DType.FLOAT32, 1, shape[0], 20, 24)
            geometry = ([1, 1], [edge, edge], [1, 1], groups)
            call = ConvCodes(x, 0.1, 3, weights, scales, None, *geometry)
            self.graph.calls.append(call.call(y.id))
            self.graph.outputs.append(y.id)

    def value(self, dtype: DType, *shape: int, **more: str) -> ir.Ref:
        name = f"v{len(self.graph.values)}"
        return ir.Ref(self.graph.add(ir.Value(name, dtype, shape, shape, **more)))

    def constant(self, data: np.ndarray) -> ir.Ref:
        dtype = DType[data.dtype.name.upper()]
        key = content_key(dtype, data.shape, [data.data])
        self.data[key] = data
        return self.value(dtype, *data.shape, data_key=key)

    def bytes_of(self, key: str) -> memoryview:
        return memoryview(self.data[key].reshape(-1).view(np.uint8))

    def once(self) -> ir.Graph:
        """The graph whose large constants are what plans bind, with data for it."""
        made = collect.collect(
            self.graph, profiles_for(self.graph, False), self.bytes_of
        )
        self.data |= made.data
        parts = laid_out(self.graph, made.parts, self.bytes_of)
        graph, plans = with_parts(self.graph, made.plans, parts)
        check_graph(graph)
        calls = [call.op for call in graph.calls]
        for row, before in zip(plans.dispatches, made.plans.dispatches):
            assert calls[row.call] == self.graph.calls[before.call].op
        return graph

    def uploaded(self, graph: ir.Graph, caps: Caps) -> list[tuple[Constant, bytes]]:
        """What a plan puts into its buffers, in order."""
        made = []
        for each in Planner(graph, caps).upper_bound().constants:
            data = elements(self.bytes_of, each)
            content = b"".join(piece.tobytes() for _, piece in pieces(data, each))
            made.append((each, content))
        return made


FILTERS = {
    "strips": (16, 12, 3, 3),
    "words": (100, 12, 1, 1),
    "few channels": (40, 3, 5, 5),
}


@pytest.mark.parametrize("name", FILTERS)
def test_all_read_one_copy(name: str) -> None:
    """A GPU is given the bytes of the file; a CPU adapter what it was before."""
    stored = Stored(FILTERS[name])
    before = {
        caps.name: stored.uploaded(stored.graph, caps) for caps in (CPU, AOT_CAPS)
    }
    graph = stored.once()
    assert graph.calls[0].op == LaidOut.NAME
    (weights,) = (
        v for v in stored.graph.values if v.dtype is DType.INT8 and v.data_key
    )
    assert weights.data_key not in {value.data_key for value in graph.values}
    for caps in (CPU, AOT_CAPS):
        after = stored.uploaded(graph, caps)
        wanted = [content for _, content in before[caps.name]]
        assert [content for _, content in after] == wanted
    for constant, _ in stored.uploaded(graph, AOT_CAPS):
        if constant.packing != "filter_sums":
            assert (constant.parts, constant.view, constant.packing) == ((), None, "")


def test_small_constants_need_no_call() -> None:
    stored = Stored((16, 12, 1, 1))
    assert [call.op for call in stored.once().calls] == [ConvCodes.NAME]


def test_filters_that_are_read_as_floats_need_no_call() -> None:
    """GPUs convert what they load; CPU adapters are given floats."""
    stored = Stored((180, 1, 3, 3))
    graph = stored.once()
    assert [call.op for call in graph.calls] == [ConvCodes.NAME]
    for caps, storage in ((AOT_CAPS, Storage.I32), (CPU, Storage.F32)):
        codes = [c for c, _ in stored.uploaded(graph, caps) if c.dtype is DType.INT8]
        assert [constant.storage for constant in codes] == [storage]


def test_a_state_keeps_the_data_that_it_begins_with() -> None:
    stored = Stored(FILTERS["strips"])
    weights = next(v for v in stored.graph.values if v.data_key)
    shape = tuple(map(int, weights.shape))
    stored.value(weights.dtype, *shape, data_key=weights.data_key, state="cache")
    assert weights.data_key in {value.data_key for value in stored.once().values}


def test_parts_make_a_whole() -> None:
    """Each fills its view; what is in none is 0."""
    left = drawn(np.float32, 2, 3)
    right = drawn(np.float32, 2)
    data = {"left": left, "right": right}
    parts = (
        Part("left", DType.FLOAT32, (6,), ((2, 3), (5, 1), 0), "", ()),
        Part("right", DType.FLOAT32, (2,), ((2,), (5,), 4), "", ()),
    )

    def bytes_of(key: str) -> memoryview:
        return memoryview(data[key].reshape(-1).view(np.uint8))

    whole = joined(bytes_of, parts, DType.FLOAT32, (2, 5)).reshape(2, 5)
    np.testing.assert_array_equal(whole[:, :3], left)
    np.testing.assert_array_equal(whole[:, 4], right)
    assert not whole[:, 3].any()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"packings": ["filter_sums"]}, "a packing must be known, got filter_sums"),
        ({"packings": []}, "parts must be told alike"),
        ({"views": [[0, 4]]}, "a view must have a stride for every extent"),
        ({"views": [[0, -4, 1]]}, r"extents must be > 0, got \(-4,\)"),
        ({"views": [[8, 1800, 1]]}, "a view must lie in 1728 elements, got 8 to 1807"),
        ({"views": [[-1, 1700, 1]]}, "a view must lie in 1728 elements, got -1 to"),
        ({"views": [[0, 800, 1]]}, "parts must hold 1728 elements"),
        ({"views": [[0, 90000, 0]]}, "a part of 90000 elements must hold them"),
        ({"parts": [ir.Ref(0)]}, "a part must be data of the file"),
    ],
)
def test_calls_that_lie_are_refused(changes: dict[str, Any], said: str) -> None:
    graph = Stored(FILTERS["strips"]).once()
    call = graph.calls[0]
    replace(LaidOut.of(call), **changes).write_to(call)
    check_graph(graph)
    with pytest.raises(Unsupported, match=said):
        Planner(graph, CPU).upper_bound()


def test_parts_that_are_not_what_they_are_called_are_errors_of_the_file() -> None:
    stored = Stored(FILTERS["strips"])
    graph = stored.once()
    call = graph.calls[0]
    replace(LaidOut.of(call), packings=["codes_to_words"]).write_to(call)
    with pytest.raises(InvalidBlob, match="must be what codes_to_words makes of"):
        stored.uploaded(graph, CPU)


def test_a_table_in_parts_is_known_by_who_reads_it() -> None:
    """A layer that packs a table for CPU adapters is looked for by the table's key."""
    stored = Stored(FILTERS["strips"])
    graph = stored.once()
    (part,) = (v.data_key for v in graph.values if v.dtype is DType.INT32)
    assert Planner(graph, CPU)._readers[part] == {LaidOut.NAME, ConvCodes.NAME}
    assert math.prod(FILTERS["strips"]) == 1728
