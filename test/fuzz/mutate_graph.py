"""Mutations of an ir.Graph, in place. What they leave can be written as a blob.

Some break a single rule of the format. Others change the same size, expression or
operand everywhere, so that what they make reaches the planner and the kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from executorch_webgpu import ir

from . import values

Mutation = Callable[[Random, ir.Graph], None]


def _changed(rng: Random, items: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """The tuple with an item replaced, inserted, removed or doubled, or turned."""
    made = list(items)
    at = rng.randrange(len(made) + 1)
    kind = rng.randrange(6)
    if kind <= 1 and made:
        made[at % len(made)] = make()
    elif kind == 2:
        made.insert(at, make())
    elif kind == 3 and made:
        del made[at % len(made)]
    elif kind == 4 and made:
        made = made * rng.choice((2, 3, 40))
    else:
        rng.shuffle(made)
    return tuple(made)


def shape(rng: Random, graph: ir.Graph) -> None:
    value = rng.choice(graph.values)
    value.shape = _changed(rng, value.shape, lambda: values.extent(rng, graph))


def bound(rng: Random, graph: ir.Graph) -> None:
    value = rng.choice(graph.values)
    value.bound = _changed(rng, value.bound, lambda: values.integer(rng))


def dim_order(rng: Random, graph: ir.Graph) -> None:
    value = rng.choice(graph.values)
    order = value.dim_order or tuple(range(len(value.shape)))
    value.dim_order = _changed(rng, order, lambda: rng.choice((0, 1, 2, 3, 9, 255)))


def kind(rng: Random, graph: ir.Graph) -> None:
    """A value's type, or whether it is an integer, and what that is."""
    value = rng.choice(graph.values)
    chosen = rng.randrange(3)
    if chosen == 0:
        value.dtype = values.dtype(rng)
    elif chosen == 1:
        value.is_int = not value.is_int
    else:
        value.symbol = values.expression(rng, graph)


def source(rng: Random, graph: ir.Graph) -> None:
    """Where a value's content comes from."""
    value = rng.choice(graph.values)
    keys = [v.data_key for v in graph.values if v.data_key] or ["k"]
    states = [v.state for v in graph.values if v.state] or ["s"]
    if rng.random() < 0.5:
        value.data_key = rng.choice((*keys, "", values.text(rng)))
    else:
        value.state = rng.choice((*states, "", values.text(rng)))


def name(rng: Random, graph: ir.Graph) -> None:
    rng.choice(graph.values).name = values.text(rng)


def symbols(rng: Random, graph: ir.Graph) -> None:
    """A range is changed, added, removed or renamed."""
    names = list(graph.symbols) or [""]
    chosen = rng.randrange(5)
    known = rng.choice(names)
    low, high = graph.symbols.get(known, (2, 8))
    if chosen == 0:
        graph.symbols[known] = values.integer(rng), high
    elif chosen == 1:
        graph.symbols[known] = low, values.integer(rng)
    elif chosen == 2:
        graph.symbols[known] = high, low
    elif chosen == 3:
        graph.symbols.pop(known, None)
        if rng.random() < 0.5:
            graph.symbols[values.text(rng)] = low, high
    else:
        for number in range(rng.choice((1, 3, 300))):
            graph.symbols[f"x{number}"] = low, rng.choice((high, 2**31, 2**62))


def resize(rng: Random, graph: ir.Graph) -> None:
    """A size becomes another wherever it occurs, in arguments too."""
    sizes = [dim for value in graph.values for dim in value.bound]
    if not sizes:
        return
    old, new = rng.choice(sizes), values.integer(rng)

    def swap(item: Any) -> Any:
        return new if type(item) is int and item == old else item

    for value in graph.values:
        value.shape = tuple(map(swap, value.shape))
        value.bound = tuple(map(swap, value.bound))
    graph.calls[:] = [call.map_args(swap) for call in graph.calls]


def reexpress(rng: Random, graph: ir.Graph) -> None:
    """An extent becomes another expression wherever it occurs."""
    dims = [dim for value in graph.values for dim in value.shape]
    if not dims:
        return
    old, new = rng.choice(dims), values.expression(rng, graph)
    limit = rng.choice((0, 2, 8, 64, 2**20, 2**31 - 1)) if rng.random() < 0.5 else None
    for value in graph.values:
        pairs = zip(value.shape, value.bound)
        value.bound = tuple(
            b if limit is None or dim != old else limit for dim, b in pairs
        )
        value.shape = tuple(new if dim == old else dim for dim in value.shape)


def retype(rng: Random, graph: ir.Graph) -> None:
    """A type becomes another wherever it occurs."""
    old, new = rng.choice(graph.values).dtype, values.dtype(rng)
    for value in graph.values:
        if value.dtype is old:
            value.dtype = new


def argument(rng: Random, graph: ir.Graph) -> None:
    """An argument of a call or of a step is replaced, inserted, removed or nested."""
    lists = [call.args for call in graph.calls]
    lists += [step.args for call in graph.calls for step in call.post]
    args = rng.choice(lists or [[]])
    while (inner := [a for a in args if isinstance(a, list)]) and rng.random() < 0.4:
        args = rng.choice(inner)
    made: list[ir.Arg]
    if args and rng.random() < 0.1:
        at = rng.randrange(len(args))
        nested: ir.Arg = args[at]
        for _ in range(rng.choice((1, 3, 60, 150))):
            nested = [nested]
        made = [*args[:at], nested, *args[at + 1 :]]
    elif args and rng.random() < 0.5:
        # Of the same kind: what the op checks is the value.
        made = list(args)
        made[rng.randrange(len(made))] = _alike(rng, graph, rng.choice(made))
    else:
        made = list(_changed(rng, tuple(args), lambda: values.argument(rng, graph)))
    args[:] = made[:10_000]


def _alike(rng: Random, graph: ir.Graph, arg: ir.Arg) -> ir.Arg:
    match arg:
        case bool():
            return not arg
        case int() if rng.random() < 0.5:
            return max(-(2**63), min(arg + rng.randint(-2, 2), 2**63 - 1))
        case int():
            return values.integer(rng)
        case ir.Ref():
            return ir.Ref(rng.randrange(len(graph.values)))
        case ir.Expr():
            return ir.Expr(values.expression(rng, graph))
        case ir.Local():
            return ir.Local(rng.randint(-3, 5))
        case list():
            return list(_changed(rng, tuple(arg), lambda: values.integer(rng)))
    return values.leaf(rng, graph)


def reroute(rng: Random, graph: ir.Graph) -> None:
    """Every use of a value reads another one."""
    old, new = (rng.randrange(len(graph.values)) for _ in range(2))

    def swap(item: ir.Leaf) -> ir.Leaf:
        return ir.Ref(new) if item == ir.Ref(old) else item

    graph.calls[:] = [call.map_args(swap) for call in graph.calls]


def op(rng: Random, graph: ir.Graph) -> None:
    """A call is to another op, with the same arguments."""
    if graph.calls:
        call = rng.choice(graph.calls)
        known = rng.choice(values.op_names())
        call.op = known if rng.random() < 0.95 else values.text(rng)


def call(rng: Random, graph: ir.Graph) -> None:
    """A call of any op, with arguments of the types that it declares."""
    name = rng.choice(values.op_names())
    made = ir.Call(name, values.arguments_for(rng, graph, name), [])
    if graph.calls and rng.random() < 0.8:
        at = rng.randrange(len(graph.calls))
        made.outputs = graph.calls[at].outputs
        graph.calls[at] = made
    else:
        known = rng.choice(graph.values)
        made.outputs = [graph.add(replace(known, data_key="", state=""))]
        graph.calls.insert(rng.randrange(len(graph.calls) + 1), made)


def calls(rng: Random, graph: ir.Graph) -> None:
    """Calls are doubled, removed or in another order."""
    graph.calls[:] = _changed(
        rng,
        tuple(graph.calls),
        lambda: rng.choice(graph.calls or [ir.Call("", [], [])]),
    )


def ids(rng: Random, graph: ir.Graph) -> None:
    """What calls define, or what the delegate takes and gives."""
    places = [call.outputs for call in graph.calls] + [graph.inputs, graph.outputs] * 3
    place = rng.choice(places)
    place[:] = _changed(rng, tuple(place), lambda: values.index(rng, len(graph.values)))


def mutations(rng: Random, graph: ir.Graph) -> None:
    count = len(graph.values)
    if graph.mutations and rng.random() < 0.5:
        state = rng.choice(list(graph.mutations))
        new = graph.mutations.pop(state)
        if rng.random() < 0.3:
            return
        if rng.random() < 0.5:
            state = values.index(rng, count)
        else:
            new = values.index(rng, count)
        graph.mutations[state] = new
    else:
        graph.mutations[values.index(rng, count)] = values.index(rng, count)


def steps(rng: Random, graph: ir.Graph) -> None:
    """An epilogue or elementwise program is changed, or a call gets one."""
    if not graph.calls:
        return
    call = rng.choice(graph.calls)

    def make() -> ir.Step:
        name = rng.choice(values.op_names())
        args: list[ir.Arg] = [ir.Local(-1), values.leaf(rng, graph)]
        return ir.Step(name, args[: rng.randint(0, 2)], values.dtype(rng))

    if call.post and rng.random() < 0.4:
        at = rng.randrange(len(call.post))
        known = rng.choice(values.op_names())
        call.post[at] = replace(call.post[at], op=known)
    else:
        call.post[:] = _changed(rng, tuple(call.post), make)
    if rng.random() < 0.3:
        call.result = rng.choice((None, values.dtype(rng)))


# Those that reach far come more often than those that any check finds.
ALL: tuple[Mutation, ...] = (
    *(shape, bound, dim_order, kind, source, name, symbols, ids, mutations, calls),
    *(argument, argument, argument, call, call, op, op, steps, steps),
    *(resize, resize, reexpress, reexpress, retype, reroute, reroute),
)
