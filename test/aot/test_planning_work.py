"""What planning costs: its work grows with calls, not with their squares or lengths."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from executorch_webgpu import ir
from executorch_webgpu.errors import Unsupported
from executorch_webgpu.ir.dtypes import DType
from executorch_webgpu.plan import launches, scratch
from executorch_webgpu.plan.caps import AOT_CAPS, Caps
from executorch_webgpu.plan.planner import Planner

CPU = replace(AOT_CAPS, is_cpu=True, max_storage_buffers=10)
LAYERS, HEADS, HEAD = 4, 2, 16


class Building:
    """A graph in the making, over floats."""

    def __init__(self, **symbols: tuple[int, int]) -> None:
        self.graph = ir.Graph(symbols=symbols)
        self._most = {name: high for name, (_, high) in symbols.items()}

    def value(self, *shape: ir.Dim, **more: Any) -> ir.Ref:
        bound = tuple(d if isinstance(d, int) else self._most[d] for d in shape)
        name = f"v{len(self.graph.values)}"
        return ir.Ref(
            self.graph.add(ir.Value(name, DType.FLOAT32, shape, bound, **more))
        )

    def input(self, *shape: ir.Dim) -> ir.Ref:
        made = self.value(*shape)
        self.graph.inputs.append(made.id)
        return made

    def call(self, op: str, args: list[ir.Arg], *shape: ir.Dim) -> ir.Ref:
        made = self.value(*shape)
        self.graph.calls.append(ir.Call(op, args, [made.id]))
        return made

    def state(self, name: str, *shape: ir.Dim) -> ir.Ref:
        return self.value(*shape, state=name)


def decoder(length: int, cached: bool) -> ir.Graph:
    """Four layers of attention, for prompts of up to `length` tokens."""
    made = Building(n=(2, length), at=(0, length - 1))
    x = made.input(1, HEADS, "n", HEAD)
    position = ir.Value("at", DType.INT64, (), (), is_int=True, symbol="at")
    if cached:
        made.graph.inputs.append(made.graph.add(position))
    for layer in range(LAYERS):
        keys: list[ir.Arg] = [x, x]
        for which in range(2) if cached else ():
            shape = (1, HEADS, length, HEAD)
            cache = made.state(f"cache{layer}.{which}", *shape)
            args = [cache, x, 2, ir.Expr("at")]
            keys[which] = new = made.call("webgpu.cache_put", args, *shape)
            made.graph.mutations[cache.id] = new.id
        if cached:
            args = [x, *keys, ir.Expr("at"), None, False]
            x = made.call("webgpu.attend_cached", args, 1, HEADS, "n", HEAD)
        else:
            args = [x, *keys, None, 0.0, True, None, False, None]
            x = made.call("webgpu.attention", args, 1, HEADS, "n", HEAD)
    made.graph.outputs.append(x.id)
    return made.graph


@pytest.mark.parametrize("caps", [AOT_CAPS, CPU], ids=["gpu", "cpu"])
@pytest.mark.parametrize("cached", [True, False], ids=["cached", "plain"])
def test_a_long_context_takes_no_more_dispatches(caps: Caps, cached: bool) -> None:
    """131,072 tokens: no scores are stored, neither whole nor in many blocks."""
    planner = Planner(decoder(131_072, cached), caps)
    plan = planner.upper_bound()
    assert len(plan.dispatches) <= 5 * LAYERS + 1
    assert max(buffer.size for buffer in plan.buffers) == 131_072 * HEADS * HEAD * 4
    # Other lengths use the buffers that there are; few queries are merged from parts.
    for length in (7, 1000, 100_000):
        live = [(1, HEADS, length, HEAD), 0][: 1 + cached]
        more = set(planner.plan(live).buffers) - {*plan.buffers}
        assert sum(buffer.size for buffer in more) < 1 << 20


def test_many_blocks_of_queries_are_refused_where_no_other_form_can_be() -> None:
    made = Building()
    shape = (1, HEADS, 131_072, 6)
    x = made.input(*shape)
    args: list[ir.Arg] = [x, x, x, None, 0.0, True, None, False, None]
    made.graph.outputs.append(made.call("webgpu.attention", args, *shape).id)
    with pytest.raises(Unsupported, match="head sizes must be multiples of 4"):
        Planner(made.graph, CPU).upper_bound()


def test_a_plan_has_so_many_dispatches_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "MOST_DISPATCHES", 8)
    assert len(Planner(alive(4), AOT_CAPS).upper_bound().dispatches) == 8
    with pytest.raises(Unsupported, match="at most 8 dispatches, got more"):
        Planner(alive(5), AOT_CAPS).upper_bound()


# Graphs of so many calls, each of a kind that asks for something of all others.


def alive(count: int) -> ir.Graph:
    """Results that are all alive at once, each in a buffer of its own."""
    made = Building()
    x = made.input(3, 5)
    early = [_softmax(made, x) for _ in range(count)]
    late = [_softmax(made, one) for one in early]
    made.graph.outputs.append(late[-1].id)
    return made.graph


def joined(count: int) -> ir.Graph:
    """Results that are stored in place in one concatenation."""
    made = Building()
    x = made.input(3, 5)
    parts: list[ir.Arg] = [_softmax(made, x) for _ in range(count)]
    made.graph.outputs.append(
        made.call("aten.cat.default", [parts, 0], 3 * count, 5).id
    )
    return made.graph


def states(count: int) -> ir.Graph:
    """States that are each overwritten in place."""
    made = Building()
    row = made.input(1, 5)
    for number in range(count):
        cache = made.state(f"s{number}", 3, 5)
        new = made.call("webgpu.cache_put", [cache, row, 0, 1], 3, 5)
        made.graph.mutations[cache.id] = new.id
    return made.graph


def _softmax(made: Building, x: ir.Ref) -> ir.Ref:
    return made.call("aten._softmax.default", [x, -1, False], 3, 5)


def calls(run: Callable[[], object]) -> int:
    """How many functions are called, those of the interpreter among them."""
    count = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("make", [alive, joined, states])
def test_work_grows_with_the_number_of_calls(
    make: Callable[[int], ir.Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many calls more are as much more work, however many there are already."""
    monkeypatch.setattr(scratch, "MOST_TRIED", 8)

    def work(count: int) -> int:
        return calls(lambda: Planner(make(count), AOT_CAPS).upper_bound())

    work(1)  # fills what all plans share
    few, some, many = work(50), work(150), work(250)
    assert many - some < 1.05 * (some - few)
