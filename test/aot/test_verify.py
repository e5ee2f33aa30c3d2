"""A graph from a file: every rule that it must keep, broken one at a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from executorch_webgpu import ir
from executorch_webgpu.errors import InvalidBlob, InvalidInput, Unsupported
from executorch_webgpu.ir import serialize, verify
from executorch_webgpu.ir.dtypes import DType
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.load_graph import check_graph, load_graph
from executorch_webgpu.plan.planner import Planner

X, N, W, CACHE, Y, Z, NEW = range(7)


def honest() -> ir.Graph:
    """y = relu(x @ w); cache += sum(y)."""
    f32 = DType.FLOAT32
    graph = ir.Graph(symbols={"s0": (2, 8)})
    graph.values = [
        ir.Value("x", f32, ("s0", 4), (8, 4)),
        ir.Value("n", DType.INT64, (), (), is_int=True, symbol="s0 * 2"),
        ir.Value("w", f32, (4, 4), (4, 4), data_key="sha"),
        ir.Value("c", f32, (4,), (4,), state="cache"),
        ir.Value("y", f32, ("s0", 4), (8, 4), (1, 0)),
        ir.Value("z", f32, (4,), (4,)),
        ir.Value("new", f32, (4,), (4,)),
    ]
    relu = ir.Step("aten.relu.default", [ir.Local(-1)], f32)
    graph.calls = [
        ir.Call("aten.mm.default", [ir.Ref(X), ir.Ref(W)], [Y], [relu], f32),
        ir.Call("aten.sum.dim_IntList", [ir.Ref(Y), [0], False, None], [Z]),
        ir.Call("aten.add.Tensor", [ir.Ref(CACHE), ir.Ref(Z), 1], [NEW]),
    ]
    graph.inputs, graph.outputs, graph.mutations = [X, N], [Y, N], {CACHE: NEW}
    return graph


def test_an_honest_graph_is_planned_from_its_bytes():
    graph = load_graph(serialize.write(honest()))
    planner = Planner(graph, AOT_CAPS)
    assert planner.upper_bound().inputs[0].shape == (8, 4)
    assert planner.plan([(5, 4), 10]).inputs[0].shape == (5, 4)


def _value(index: int, **changes: Any) -> Callable[[ir.Graph], None]:
    def change(graph: ir.Graph) -> None:
        graph.values[index] = replace(graph.values[index], **changes)

    return change


def _call(index: int, **changes: Any) -> Callable[[ir.Graph], None]:
    def change(graph: ir.Graph) -> None:
        graph.calls[index] = replace(graph.calls[index], **changes)

    return change


def _graph(**changes: Any) -> Callable[[ir.Graph], None]:
    return lambda graph: graph.__dict__.update(changes)


def _size(text: str, bound: int = 8) -> Callable[[ir.Graph], None]:
    return _value(X, shape=(text, 4), bound=(bound, 4))


def _step(
    op: str = "aten.relu.default", *args: ir.Arg, dtype: DType = DType.FLOAT32
) -> Callable[[ir.Graph], None]:
    return _call(0, post=[ir.Step(op, [*args], dtype)])


_NESTED: ir.Arg = [[[0]]]

VALUES = [
    (
        _value(X, name="a\x1b[2J"),
        r"value 0: a name must have .* got 'a\\x1b\[2J' \(5\)",
    ),
    (_value(W, data_key="k" * 1001), "value 2: a name must have at most 1000 .*(1001)"),
    (_value(CACHE, state="a\nb"), r"value 3: a name must .* printable, got 'a\\nb'"),
    (_value(X, bound=(8,)), r"value 0 (x): must have 2 upper bounds, got (8,)"),
    (_value(X, bound=(8, -4)), "value 0 (x): must have upper bounds >= 0"),
    (
        _value(X, shape=(1,) * 65, bound=(1,) * 65),
        "must have at most 64 dimensions, got",
    ),
    (
        _value(Y, dim_order=(0, 0)),
        "(y): must have an order of 2 dimensions, got (0, 0)",
    ),
    (_value(Y, dim_order=(0,)), "(y): must have an order of 2 dimensions, got (0,)"),
    (_value(Z, shape=(-1,)), r"value 5 (z): a size must be in [0, 4], got -1"),
    (_value(Z, shape=(5,)), "value 5 (z): a size must be in [0, 4], got 5"),
    (_value(Z, bound=(2**30 + 1,)), "must have <= 1073741824 elements, got 1073741825"),
    (_size("s0 + 1"), "(x): size s0 + 1 must be in [0, 8], got 9 for {'s0': 8}"),
    (_size("10 - s0", 2), "must be in [0, 2], got 8 for {'s0': 2}"),
    (_size("s0 - 9"), "(x): size s0 - 9 must be in [0, 8], got -1 for {'s0': 8}"),
    (_size("8 // (s0 - 8)"), "(x): size 8 // (s0 - 8) must not divide by 0"),
    (_size("s1"), "value 0 (x): symbols must be declared, got ['s1']"),
    (_size("9**9**9"), "value 0 (x): an exponent must be a number up to 16"),
    (_value(X, symbol="s0"), "value 0 (x): a tensor must have no symbol, got s0"),
    (_value(W, shape=("s0", 4), bound=(8, 4)), "a constant must have sizes in numbers"),
    (_value(N, shape=(1,), bound=(1,)), "an integer must have no dimension, got (1,)"),
    (_value(N, dtype=DType.INT32), "(n): an integer must be of int64, got int32"),
    (_value(N, state="n"), "(n): an integer must be no constant and no state, got n"),
    (_value(N, symbol="s0 +"), "value 1 (n): shape expression must parse, got 's0 +'"),
    (_value(Z, state="cache"), "value 5 (z): a state must be declared once, got cache"),
]
GRAPHS = [
    (_graph(symbols={"s0": (8, 2)}), "symbol s0: must have a range within int32"),
    (_graph(symbols={"s0": (2, 2**31)}), "symbol s0: must have a range within int32"),
    (_graph(symbols={"0": (2, 8)}), "symbol '0': must be an identifier, got 0"),
    (_graph(inputs=[X, 7]), "graph: an input must be one of 7 values, got 7"),
    (_graph(inputs=[X, X]), "graph: an input must be defined once, got 0"),
    (_graph(inputs=[X, W]), "graph: an input must be defined once, got 2"),
    (_graph(outputs=[9]), "graph: an output must be one of 7 values, got 9"),
    (_graph(calls=[]), "graph: an output must be defined, got 4"),
    (_graph(mutations={Y: NEW}), "graph: a mutated value must be a state, got 4"),
    (_graph(mutations={9: NEW}), "a mutated state must be one of 7 values, got 9"),
    (_graph(mutations={CACHE: 9}), "cache: a state's content must be defined, got 9"),
    (
        _graph(mutations={CACHE: Y}),
        "content must be float32 of [4], got float32 of ['s0', 4]",
    ),
]
SORT = "aten.sort.default"
CALLS = [
    (
        _call(1, op=SORT, args=[ir.Ref(Y), 0, False]),
        "must have its op's outputs, got 1",
    ),
    (_call(1, op="a\rb"), r"call 1: a name must have .* got 'a\\rb'"),
    (_call(1, op="aten.no.op"), "op must be known, got aten.no.op; if another version"),
    (
        _call(1, outputs=[]),
        "(aten.sum.dim_IntList): must have 1 to 4096 outputs, got 0",
    ),
    (_call(1, outputs=[Z, 7]), "an output must be one of 7 values, got 7"),
    (_call(1, outputs=[Y]), "an output must be a tensor defined once, got 4"),
    (_call(0, args=[ir.Ref(X), ir.Ref(Z)]), "a tensor must be defined before, got 5"),
    (_call(0, args=[ir.Ref(X), ir.Ref(-1)]), "a tensor must be defined before, got -1"),
    (_call(0, args=[ir.Ref(X), ir.Ref(N)]), "a tensor must be defined before, got 1"),
    (
        _call(0, args=[ir.Ref(X)]),
        "(aten.mm.default): must have 2 to 2 arguments, got 1",
    ),
    (_call(0, args=[ir.Ref(X), 1.0]), "argument 1 (b) must be Tensor, got 1.0"),
    (_call(0, args=[ir.Ref(X), ir.Local(0)]), "a step must read an earlier one, got 0"),
    (_call(2, args=[ir.Ref(Z)] * 65), "must have at most 64 arguments, got 65"),
    (
        _call(2, args=[ir.Expr("s9")]),
        "call 2 (aten.add.Tensor): symbols must be declared",
    ),
    (_call(2, args=["\x07"]), r"call 2 .*: a name must have .* got '\\x07'"),
    (_call(0, result=None), "call 0 (aten.mm.default): steps must follow a result"),
    (_call(0, post=[]), "steps must follow a result with a type, got float32"),
    (_step("aten.relu.default", ir.Local(0)), "a step must read an earlier one, got 0"),
    (_step("aten.relu.default", ir.Local(-3)), "must read an earlier one, got -3"),
    (_step("aten.relu.default", ir.Local(-2)), "step 0 must read what there is, got"),
    (_step("aten.mm.default", ir.Local(-1)), "step 0 must be an elementwise op, got"),
    (_step(dtype=DType.INT32), "the last step must make float32, got int32"),
    (_call(0, op="webgpu.pointwise", args=[]), "step 0 must read what there is, got"),
    (_call(0, op="aten.neg.default", args=[ir.Ref(X)]), "must have no steps, got 1"),
]
KINDS = [
    ([ir.Ref(Y), 0, False, None], "argument 1 (dim) must be list[int] | None, got 0"),
    ([ir.Ref(Y), [0.5], False, None], "argument 1 (dim) must be"),
    ([ir.Ref(Y), [True], False, None], "argument 1 (dim) must be"),
    ([ir.Ref(Y), [DType.INT8], False, None], "argument 1 (dim) must be"),
    ([ir.Ref(Y), _NESTED, False, None], "argument 1 (dim) must be"),
    ([ir.Ref(Y), [0], 1, None], "argument 2 (keepdim) must be bool, got 1"),
    ([ir.Ref(Y), [0], False, 6], "argument 3 (dtype) must be DType | None, got 6"),
    ([None, [0], False, None], "argument 0 (x) must be Tensor, got None"),
]


def _matches(expected: str) -> str:
    """Patterns are for what varies; the other sentences are meant as they are."""
    return expected if ".*" in expected else re.escape(expected)


@pytest.mark.parametrize(("change", "expected"), [*VALUES, *GRAPHS, *CALLS])
def test_a_broken_rule_is_named(change, expected):
    graph = honest()
    change(graph)
    with pytest.raises(InvalidBlob, match=_matches(expected)):
        check_graph(graph)


@pytest.mark.parametrize(("args", "expected"), KINDS)
def test_an_argument_is_of_the_kind_that_its_op_takes(args, expected):
    graph = honest()
    _call(1, args=args)(graph)
    with pytest.raises(InvalidBlob, match=_matches(expected)):
        check_graph(graph)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("MAX_VALUES", "graph: must have at most 1 values, got 7"),
        ("MAX_CALLS", "graph: must have at most 1 calls, got 3"),
        ("MAX_TOTAL_BYTES", "graph: values must have at most 1 bytes, got 368"),
        ("MAX_ITEMS", "call 0 (aten.mm.default): items must be <= 1, got 2"),
    ],
)
def test_numbers_are_limited(monkeypatch, limit, expected):
    monkeypatch.setattr(verify, limit, 1)
    with pytest.raises(InvalidBlob, match=re.escape(expected)):
        check_graph(honest())


def test_a_size_that_no_bound_was_proven_for_is_compared_with_it_in_each_call():
    graph = honest()
    _size("s0 * s0 % 9 + s0 // 8")(graph)  # 8 for s0 = 8 ** 2 % 9 = 1, 7 for 4, ...
    graph.values[Y].shape = graph.values[X].shape
    graph.values[X].bound = graph.values[Y].bound = (2, 4)
    planner = Planner(graph, AOT_CAPS)
    assert planner.upper_bound()
    with pytest.raises(InvalidInput, match=r"x must have sizes of at most \[2, 4\]"):
        planner.plan([(4, 4), 4])


def test_an_accident_is_the_files_fault_if_there_is_a_file():
    graph = honest()
    _call(1, op="aten.argsort.default", args=[ir.Ref(Y), 5, False])(graph)
    check_graph(graph)
    with pytest.raises(IndexError):
        Planner(graph, AOT_CAPS).upper_bound()
    loaded = load_graph(serialize.write(graph))
    expected = (
        r"call 1 \(aten\.argsort\.default: float32\['s0', 4\] -> float32\[4\]\)"
        " must be as export makes it, got IndexError: tuple index out of range"
    )
    with pytest.raises(InvalidBlob, match=expected):
        Planner(loaded, AOT_CAPS).upper_bound()


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        ("aten.permute_copy.default", [[0, 0]], "an order must have each of 2 dimens"),
        (
            "aten.permute_copy.default",
            [[0, 2]],
            r"a dimension must be in \[-2, 2\), got 2",
        ),
        ("aten.index_select.default", [2**31 - 1, ir.Ref(W)], "a dimension must be in"),
        ("aten.view_copy.default", [[8, 4]], "a view must have 32 elements, got"),
        ("aten.add.Tensor", [ir.Ref(CACHE), 1], "a tensor must broadcast to"),
        ("aten.slice_copy.Tensor", [0, 6, 9, 1], r"a slice must be in \[0, 8\), got"),
        ("aten.mm.default", [ir.Ref(CACHE)], "operands must be matrices that share a"),
        ("aten.mm.default", [ir.Ref(W)], r"a product must be \[8, 4\], got \(8, 3\)"),
        ("aten.mul.Tensor", [], "operands must be 2, got 1"),
        ("aten.mul.Tensor", [DType.INT8], "operand must be a tensor or a number, got"),
    ],
)
def test_a_view_never_leaves_its_operand(op, args, expected):
    graph = honest()
    graph.values[Y] = ir.Value("y", DType.FLOAT32, (8, 3), (8, 3))
    graph.calls = [ir.Call(op, [ir.Ref(X), *args], [Y])]
    graph.outputs, graph.mutations = [Y], {}
    check_graph(graph)
    with pytest.raises(Unsupported, match=expected):
        Planner(graph, AOT_CAPS).upper_bound()
