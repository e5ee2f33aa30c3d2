"""The text of kernels: what it depends on, and that it is made only once."""

from __future__ import annotations

from typing import Any, cast

import pytest

from executorch_webgpu import ir
from executorch_webgpu.errors import Unsupported
from executorch_webgpu.ir.dtypes import DType, Storage
from executorch_webgpu.plan import wgsl_text
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.plan import Plan, Role
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.plan.pointwise import Emitter
from executorch_webgpu.plan.wgsl_text import Slot

Y = Slot("y", DType.FLOAT32, Storage.F32, write=True)


def text(
    params: dict[str, wgsl_text.Param],
    consts: dict[str, wgsl_text.Const] | None = None,
    slot: Slot = Y,
) -> str:
    return wgsl_text.assemble("elementwise", [slot], params, consts or {}, "", False)


def products(sizes: int) -> ir.Graph:
    """A product and its softmax, of `sizes` rows at most."""
    graph = ir.Graph(symbols={"s0": (1, sizes)})
    for name, shape in (("a", ("s0", 24)), ("b", (24, 40)), ("c", ("s0", 40))):
        bound = tuple(sizes if extent == "s0" else int(extent) for extent in shape)
        graph.add(ir.Value(name, DType.FLOAT32, shape, bound))
    graph.add(ir.Value("y", DType.FLOAT32, ("s0", 40), (sizes, 40)))
    graph.calls = [
        ir.Call("aten.mm.default", [ir.Ref(0), ir.Ref(1)], [2]),
        ir.Call("aten._softmax.default", [ir.Ref(2), 1, False], [3]),
    ]
    graph.inputs, graph.outputs = [0, 1], [3]
    return graph


def test_texts_are_made_once_for_all_shapes() -> None:
    planner = Planner(products(64), AOT_CAPS)
    first = planner.variant({"s0": 37}).at({"s0": 37})
    assert first is not None
    before = wgsl_text._text.cache_info()
    planner.variant({"s0": 33})
    again = planner.variant({"s0": 37}).at({"s0": 37})
    after = wgsl_text._text.cache_info()
    assert again == first
    assert after.misses == before.misses
    assert after.hits >= before.hits + 2 * len(first.dispatches)


def test_a_plan_from_remembered_texts_is_the_same() -> None:
    warm = Planner(products(64), AOT_CAPS).upper_bound()
    wgsl_text._text.cache_clear()
    wgsl_text.reports.cache_clear()
    assert Planner(products(64), AOT_CAPS).upper_bound() == warm


def test_sizes_are_not_in_the_text_but_types_are() -> None:
    base = text({"n": 3, "steps": (1, 2)})
    assert text({"n": 7, "steps": (5, 6, 7)}) == base
    for params in (
        {"n": 3.0, "steps": (1, 2)},
        {"n": 3, "steps": (1, 2, 3, 4, 5)},
        {"m": 3, "steps": (1, 2)},
        {"n": 3},
    ):
        assert text(params) != base
    assert text({"n": 3, "steps": (1, 2)}, slot=Slot("x", Y.dtype, Y.storage)) != base


@pytest.mark.parametrize(
    ("value", "literal"), [(True, "true"), (1, "1"), (1.0, "1.0f")]
)
def test_constants_that_python_calls_equal_are_not_mixed_up(
    value: int | float | bool, literal: str
) -> None:
    for other in (True, 1, 1.0):
        text({"n": 1}, {"C": other})
    assert f"const C = {literal};" in text({"n": 1}, {"C": value})


def test_scalars_come_before_lists() -> None:
    params: dict[str, wgsl_text.Param] = {"list": (1, 2), "n": 3, "f": 0.5}
    made = text(params)
    assert made.index("  n: i32") < made.index("  f: f32") < made.index("  list: arr")
    data = wgsl_text.pack_params(wgsl_text.param_words(params))
    assert data[:4] == (3).to_bytes(4, "little")
    assert data[16:20] == (1).to_bytes(4, "little")


def plan_of(
    op: str, shapes: list[tuple[DType, tuple[int, ...]]], *rest: ir.Arg
) -> Plan:
    """One call, of inputs of these types and shapes; the last is the result's."""
    graph = ir.Graph()
    for number, (dtype, shape) in enumerate(shapes):
        graph.add(ir.Value(f"v{number}", dtype, shape, shape))
    result = len(shapes) - 1
    inputs = list(range(result))
    graph.calls = [ir.Call(op, [*map(ir.Ref, inputs), *rest], [result])]
    graph.inputs, graph.outputs = inputs, [result]
    return Planner(graph, AOT_CAPS).upper_bound()


def test_only_kernels_that_report_have_a_status_buffer() -> None:
    f32, i64 = DType.FLOAT32, DType.INT64
    sizes: list[ir.Arg] = [[2, 2], [2, 2], [0, 0], False, True, None]
    planes = [(f32, (1, 3, 8, 8)), (f32, (1, 3, 4, 4))]
    pool = plan_of("aten.avg_pool2d.default", planes, *sizes)
    table = [(f32, (37, 8)), (i64, (5,)), (f32, (5, 8))]
    embedding = plan_of("aten.embedding.default", table, -1, False, False)
    for plan, count in ((pool, 0), (embedding, 1)):
        status = [b for b in plan.buffers if b.role is Role.STATUS]
        assert len(status) == count
        assert (plan.status >= 0) == bool(count)
        assert all(("status" in p.wgsl) == bool(count) for p in plan.pipelines)


@pytest.mark.parametrize(
    ("code", "reports"),
    [
        ("fn f(i: i32) -> i32 { return checked_index(i, 3); }", True),
        ("fn f(i: i32) -> i32 { return divide_floor_exact (i, 3); }", True),
        ("fn f(i: i32) -> i32 { return i; } // as checked_index(i, 3) would", False),
        ("fn f(i: i32) -> i32 { let divisor = i; return divisor; }", False),
        ("fn divisor(i: i32) -> i32 { return i; } fn f() { divisor(1); }", False),
        ("fn report(i: i32) {} fn f() { report(1); }", False),
    ],
)
def test_reports_are_found_by_what_is_called(code: str, reports: bool) -> None:
    assert wgsl_text.reports_in(code) is reports
    assert wgsl_text.reports("elementwise", code) is reports


def test_two_helpers_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wgsl_text, "LIBRARIES", ("common", "status", "common"))
    with pytest.raises(ValueError, match="must be its own, got is_nan"):
        wgsl_text._items.__wrapped__()


def test_many_workgroups_are_folded_into_two_dimensions() -> None:
    rows = 40_000
    shapes = [(DType.FLOAT32, (rows, 113)), (DType.FLOAT32, (rows, 113))]
    plan = plan_of("aten._softmax.default", shapes, 1, False)
    (dispatch,) = plan.dispatches
    assert plan.pipelines[dispatch.pipeline].label == "softmax_workgroup"
    assert dispatch.groups == (32768, 2, 1)
    # Scalars in the order in which they are given: count, inner, workgroups.
    assert plan.params[8:12] == rows.to_bytes(4, "little")


def test_values_in_messages_are_not_endless():
    """An argument in a file may be a list of thousands of numbers, or of lists."""
    nested: list[Any] = [1.5]
    for _ in range(200):
        nested = [nested, 1]
    for operand in ([7] * 30_000, nested):
        with pytest.raises(Unsupported) as refused:
            Emitter("p").term(cast("Any", operand))
        said = str(refused.value)
        assert said.startswith("operand must be a tensor or a number, got [")
        assert said.endswith("...")
        assert len(said) < 600
