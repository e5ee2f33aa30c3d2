"""Variants: a plan that was traced at some sizes is, at others, the planner's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executorch_webgpu import ir
from executorch_webgpu.errors import InvalidInput
from executorch_webgpu.ir.dtypes import DType
from executorch_webgpu.plan import traced_int
from executorch_webgpu.plan.caps import AOT_CAPS, Caps
from executorch_webgpu.plan.plan import Plan
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.plan.traced_int import Trace, TracedInt
from executorch_webgpu.plan.variant import Variant
from executorch_webgpu.plan.variants import cover

CPU = replace(AOT_CAPS, is_cpu=True, max_storage_buffers=10)


def layer(symbols: Mapping[str, tuple[int, int]], rows: ir.Dim, bound: int) -> ir.Graph:
    """x @ w, its softmax, and the sum of that, for a number of rows that varies."""
    graph = ir.Graph(symbols=dict(symbols))

    def value(*shape: ir.Dim, **more: str) -> ir.Ref:
        most = tuple(extent if isinstance(extent, int) else bound for extent in shape)
        name = f"v{len(graph.values)}"
        return ir.Ref(graph.add(ir.Value(name, DType.FLOAT32, shape, most, **more)))

    x, w = value(rows, 64), value(64, 96, data_key="weights")
    product, weights, total = value(rows, 96), value(rows, 96), value(rows)
    graph.inputs, graph.outputs = [x.id], [total.id]
    graph.calls = [
        ir.Call("aten.mm.default", [x, w], [product.id]),
        ir.Call("aten._softmax.default", [product, 1, False], [weights.id]),
        ir.Call("aten.sum.dim_IntList", [weights, [1], False, None], [total.id]),
    ]
    return graph


def planned(variant: Variant, sizes: Mapping[str, int]) -> Plan:
    """What a variant makes of some sizes. Forms that could be measured, which nothing
    is chosen by here, have names with sizes."""
    made = variant.at(sizes)
    assert made is not None
    return replace(made, choices=())


def own(planner: Planner, sizes: Mapping[str, int]) -> Plan:
    """What the planner makes for these sizes, with no variant that was there before."""
    return planned(planner.variant(sizes), sizes)


@pytest.mark.parametrize("caps", [AOT_CAPS, CPU], ids=["gpu", "cpu"])
def test_variants_serve_every_size_with_what_the_planner_makes(caps: Caps) -> None:
    planner = Planner(layer({"n": (2, 400)}, "n", 400), caps)
    found = cover(planner)
    assert found.refused == ()
    assert found.tried == 400
    assert 1 < len(found.variants) < 20
    for size in range(1, 401):
        serving = [v for v in found.variants if v.holds({"n": size})]
        assert serving, size
        assert planned(serving[0], {"n": size}) == own(planner, {"n": size}), size


def test_sizes_that_are_expressions_of_several_symbols() -> None:
    graph = layer({"a": (2, 300), "b": (2, 900)}, "a * 2 + b // 3", 900)
    planner = Planner(graph, AOT_CAPS)
    found = cover(planner)
    assert found.refused == ()
    for sizes in ({"a": 3, "b": 5}, {"a": 77, "b": 512}, {"a": 300, "b": 900}):
        serving = next(v for v in found.variants if v.holds(sizes))
        made = planned(serving, sizes)
        assert made == own(planner, sizes)
        assert made.inputs[0].shape == (sizes["a"] * 2 + sizes["b"] // 3, 64)


def test_a_graph_without_symbols_has_one_variant() -> None:
    planner = Planner(layer({}, 8, 8), AOT_CAPS)
    found = cover(planner)
    assert [v.at({}) for v in found.variants] == [planner.upper_bound()]
    assert found.variants[0].guards == {}


def test_sizes_that_the_planner_refuses_are_named() -> None:
    graph = layer({"n": (2, 40)}, "80 // n", 20)
    found = cover(Planner(graph, AOT_CAPS))
    assert {each.sizes["n"] for each in found.refused} == {1, 2, 3}
    assert "must have sizes of at most [20, 64]" in found.refused[0].reason


def test_guards_can_be_read() -> None:
    planner = Planner(layer({"n": (2, 64)}, "n", 64), AOT_CAPS)
    variant = planner.variant({"n": 64})
    assert variant.guard_texts() == ["33 <= n"]
    assert "ceil(n / " in str(variant.plan)
    assert planner.variant({"n": 9}).guard_texts() == ["9 <= n <= 16"]


# -- traced ints -----------------------------------------------------------------------


def traced(**values: int) -> Trace:
    ranges = {name: (1, 199) for name in values}
    return Trace(values, ranges, {name: np.arange(1, 200) for name in values})


OPERATIONS: list[Callable[[int, int], int]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a // b,
    lambda a, b: a % b,
    lambda a, b: -(-a // b),
    lambda a, b: a * 12 // 4 + b * 0,
    lambda a, b: max(a, b),
    lambda a, b: min(a, 3 * b) + 1,
    lambda a, b: a if a < b else b * 2,
    lambda a, b: abs(a - b),
    lambda a, b: math.prod((a, b, 2)),
]
SIZES = st.integers(1, 150)


@given(st.lists(st.sampled_from(OPERATIONS), max_size=6), SIZES, SIZES, SIZES, SIZES)
def test_where_the_guards_hold_the_code_computes_the_same(
    steps: list[Callable[[int, int], int]], x: int, y: int, other_x: int, other_y: int
) -> None:
    def run(a: int, b: int) -> int:
        for step in steps:
            a, b = step(a, b if b != 0 else 7), a
        return a

    trace = traced(x=x, y=y)
    made = run(trace.env["x"], trace.env["y"])
    assert traced_int.plain(made) == run(x, y)
    wanted = [trace.register(made), *trace.guards]
    values = trace.code.run({"x": other_x, "y": other_y})
    if all(values[at] == outcome for at, outcome in trace.guards.items()):
        found = values[made.register] if isinstance(made, TracedInt) else made
        assert found == run(other_x, other_y)
    less, places = trace.code.needed(wanted)
    again = less.run({"x": other_x, "y": other_y})
    assert [again[places[each]] for each in wanted] == [values[each] for each in wanted]


@pytest.mark.parametrize(
    "use",
    [int, float, lambda n: n / 2, lambda n: n**2, lambda n: n << 1, math.sqrt]
    + [lambda n: n.bit_length(), lambda n: n * 0.5, lambda n: n < 5.5, math.floor],
)
def test_what_needs_the_value_holds_for_it_alone(use: Callable[[int], object]) -> None:
    trace = traced(n=9)
    assert use(trace.env["n"]) == use(9)
    (guard,) = trace.guards
    assert trace.code.text(guard) == "(n == 9)"
    assert trace.guards[guard]


def test_equal_expressions_are_equal_without_a_guard() -> None:
    trace = traced(n=9)
    n = trace.env["n"]
    assert (n + 1) * 4 == (1 + n) * 4
    assert len({n + 1, 1 + n, n * 2}) == 2
    assert -(-n * 8 // 4) == n * 2
    assert n * 6 % 3 == 0
    assert not trace.guards


def test_a_size_in_the_text_of_a_kernel_is_noticed() -> None:
    planner = Planner(layer({"n": (2, 64)}, "n", 64), AOT_CAPS)
    n = traced(n=9).env["n"]
    recorder = planner.record({"n": 9}).g
    with pytest.raises(AssertionError, match="a size is in its text"):
        recorder.dispatch("elementwise", {}, {}, code=f"// {n}", invocations=1)


def test_the_largest_that_a_count_can_be_is_made_sure_of() -> None:
    trace = traced(n=9)
    n = trace.env["n"]
    assert traced_int.largest(7) == 7
    assert traced_int.largest(n * 3) == 597
    assert not trace.guards, "it cannot be more"
    assert n <= 50
    assert traced_int.largest(n * 3) == 150
    assert traced_int.largest(n * (200 - n)) == 50 * 150
    assert [trace.code.text(guard) for guard in trace.guards] == [
        *("(50 < n)", "(150 < (n * 3))", "(7500 < (n * (200 - n)))")
    ]


def test_division_by_zero_is_the_models_own() -> None:
    trace = traced(n=4)
    with pytest.raises(ZeroDivisionError):
        trace.env["n"] // (trace.env["n"] - 4)
    graph = layer({"n": (2, 40)}, "80 // (n - 2)", 80)
    with pytest.raises(InvalidInput, match="must not divide by 0"):
        Planner(graph, AOT_CAPS).plan_at({"n": 2})
