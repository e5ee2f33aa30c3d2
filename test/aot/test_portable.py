"""Plans in the file: what is written is read, and is what the planner would make."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from executorch_webgpu import ir
from executorch_webgpu.errors import (
    InvalidBlob,
    InvalidInput,
    UnfitDevice,
    Unsupported,
)
from executorch_webgpu.ir import serialize as graph_bytes
from executorch_webgpu.ir.dtypes import DType
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.plan import Plan, Role
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.portable import collect, serialize, text
from executorch_webgpu.portable.at_sizes import FilePlanner, fitting_profile
from executorch_webgpu.portable.plans import Guard, Plans
from executorch_webgpu.portable.profiles import profiles_for
from executorch_webgpu.portable.verify import verify

BASE = replace(AOT_CAPS, f16=False, name="baseline")


def layer(rows: ir.Dim, symbols: Mapping[str, tuple[int, int]], most: int) -> ir.Graph:
    """relu(x @ w) and the softmax of that, for a number of rows that varies."""
    graph = ir.Graph(symbols=dict(symbols))

    def value(*shape: ir.Dim, **more: str) -> ir.Ref:
        bound = tuple(extent if isinstance(extent, int) else most for extent in shape)
        name = f"v{len(graph.values)}"
        return ir.Ref(graph.add(ir.Value(name, DType.FLOAT32, shape, bound, **more)))

    x, w = value(rows, 64), value(64, 96, data_key="weights")
    product, weights = value(rows, 96), value(rows, 96)
    graph.inputs, graph.outputs = [x.id], [weights.id]
    graph.calls = [
        ir.Call("aten.mm.default", [x, w], [product.id]),
        ir.Call("aten._softmax.default", [product, 1, False], [weights.id]),
    ]
    return graph


def no_data(key: str) -> Any:
    raise AssertionError(f"nothing of {key} is packed here")


def plans_of(graph: ir.Graph) -> Plans:
    return collect.collect(graph, profiles_for(graph, False), no_data).plans


@pytest.fixture(scope="module")
def rows() -> ir.Graph:
    return layer("n", {"n": (2, 400)}, 400)


@pytest.fixture(scope="module")
def plans(rows: ir.Graph) -> Plans:
    return plans_of(rows)


def work(plan: Plan) -> list[Any]:
    """What a plan does, however its buffers are numbered."""
    buffers = [
        (b.role, b.key if b.role is not Role.PARAMS else "") for b in plan.buffers
    ]

    def named(index: int) -> Any:
        return None if index < 0 else buffers[index]

    ports = [
        (
            p.name,
            p.kind,
            p.dtype,
            p.storage,
            p.shape,
            p.value,
            p.limits,
            named(p.buffer),
        )
        for p in (*plan.inputs, *plan.outputs)
    ]
    return [
        *ports,
        *(
            (
                plan.pipelines[d.pipeline],
                d.groups,
                plan.params[d.params : d.params + d.params_size],
                d.ranges,
                d.label,
                d.call,
                [named(index) for index in d.buffers],
            )
            for d in plan.dispatches
        ),
    ]


def test_plans_of_the_file_are_those_of_the_planner(
    rows: ir.Graph, plans: Plans
) -> None:
    blob = serialize.append(graph_bytes.write(rows), plans)
    section = serialize.section(blob)
    assert section is not None
    read = serialize.read(section)
    assert read == plans
    verify(read)
    planner = Planner(rows, BASE)
    made = FilePlanner(read, fitting_profile(read, BASE))
    for size in (1, 2, 3, 16, 17, 64, 65, 200, 399, 400):
        assert work(made.plan([(size, 64)])) == work(planner.plan([(size, 64)])), size
    assert work(made.upper_bound()) == work(planner.upper_bound())
    kernels = {pipeline.wgsl for pipeline in made.pipelines()}
    assert {p.wgsl for p in planner.upper_bound().pipelines} <= kernels


def test_a_graph_with_plans_is_read_as_one_without(
    rows: ir.Graph, plans: Plans
) -> None:
    alone = graph_bytes.write(rows)
    assert serialize.section(alone) is None
    both = serialize.append(alone, plans)
    assert graph_bytes.write(graph_bytes.read(both)) == alone


def test_a_device_gets_the_first_profile_that_it_fits(plans: Plans) -> None:
    names = [each.name for each in plans.profiles]
    assert names == ["cpu", "subgroups", "baseline"]
    on_cpu = replace(BASE, subgroups=True, is_cpu=True)
    assert fitting_profile(plans, on_cpu).name == "cpu"
    with_them = replace(BASE, subgroups=True)
    assert fitting_profile(plans, with_them).name == "subgroups"
    assert fitting_profile(plans, BASE).name == "baseline"
    with pytest.raises(
        UnfitDevice,
        match="baseline: the device must have, for profile baseline,"
        " max-compute-invocations-per-workgroup of 256, got 128",
    ):
        fitting_profile(plans, replace(BASE, max_invocations=128))
    for profile, lacking in zip(plans.profiles, ["cpu-adapter", "subgroups"]):
        only = replace(plans, profiles=(profile,))
        said = f"for profile {profile.name}, {lacking}, got none"
        with pytest.raises(UnfitDevice, match=said):
            fitting_profile(only, BASE)


def test_plans_for_cpus_are_left_out_where_constants_would_be_held_twice(
    rows: ir.Graph,
) -> None:
    def packing(*args: Any) -> Any:
        for caps in profiles_for(*args):
            yield replace(caps, packs=True)

    plans = collect.collect(rows, packing(rows, False), no_data).plans
    assert [each.name for each in plans.profiles] == ["subgroups", "baseline"]


def test_plans_for_cpus_are_left_out_where_they_are_those_for_gpus() -> None:
    graph = ir.Graph()
    shape = ((4,), (4,))
    x, y = (ir.Ref(graph.add(ir.Value(n, DType.FLOAT32, *shape))) for n in "xy")
    graph.inputs, graph.outputs = [x.id], [y.id]
    graph.calls = [ir.Call("aten.relu.default", [x], [y.id])]
    assert [each.name for each in plans_of(graph).profiles] == ["baseline"]


def test_a_graph_without_reductions_needs_no_subgroups() -> None:
    graph = layer(8, {}, 8)
    graph.calls.pop()
    graph.outputs = [2]
    plans = plans_of(graph)
    assert [each.name for each in plans.profiles] == ["cpu", "baseline"]
    assert plans.code == ()


def test_sizes_that_were_not_exported_are_named(plans: Plans) -> None:
    made = FilePlanner(plans, plans.profiles[-1])
    with pytest.raises(InvalidInput, match=r"size n must be in \[1, 400\], got 401"):
        made.plan([(401, 64)])
    with pytest.raises(
        InvalidInput,
        match=r"v0 must have shape \['n', 64\] \(up to \[400, 64\]\), got \[3, 5\]",
    ):
        made.plan([(3, 5)])
    with pytest.raises(InvalidInput, match=r"must have 2 dimensions, got \[\]"):
        made.plan([()])
    with pytest.raises(InvalidInput, match="inputs must be 1, got 2"):
        made.plan([(3, 64), (3, 64)])


def test_where_sizes_are_found() -> None:
    plans = plans_of(layer("n * 4 + 3", {"n": (2, 40)}, 163))
    (symbol,) = plans.symbols
    assert (symbol.divisor, symbol.offset, symbol.dim) == (4, 3, 0)
    made = FilePlanner(plans, plans.profiles[-1])
    assert made.plan([(43, 64)]).symbols == {"n": 10}
    with pytest.raises(InvalidInput, match=r"must have shape .*, got \[44, 64\]"):
        made.plan([(44, 64)])
    with pytest.raises(Unsupported, match="size n must be an extent of an input"):
        plans_of(layer("n // 2 + 1", {"n": (2, 40)}, 21))


def test_what_no_plan_serves_is_named(plans: Plans) -> None:
    profile = plans.profiles[-1]
    never = replace(profile.variants[0], guards=(Guard(0, 7, 7),))
    made = FilePlanner(plans, replace(profile, variants=(never,)))
    with pytest.raises(
        InvalidInput,
        match=r"no plan for sizes n=8: exported were n in \[1, 400\]",
    ):
        made.plan([(8, 64)])


def test_plans_can_be_read(plans: Plans) -> None:
    shown = "\n".join(text.lines(plans))
    assert "n in [1, 400]: input 0 dimension 0" in shown
    assert "129 <= n <= 256" in shown
    assert "[ceil(n / " in shown or "[(ceil(n / " in shown


# -- files that are not as they should be ----------------------------------------------


def resealed(body: bytes, version: int = serialize.FORMAT) -> memoryview:
    header = (serialize.MAGIC, version, len(body), zlib.crc32(body))
    return memoryview(struct.pack("<4sIII", *header) + body)


def test_damage_is_found_before_anything_is_read(rows: ir.Graph, plans: Plans) -> None:
    section = serialize.section(serialize.append(graph_bytes.write(rows), plans))
    assert section is not None
    body = bytes(section[16:])
    for broken, message in (
        (section[:10], "at least 16 bytes"),
        (section[:-4], "must have .* bytes, got"),
        (memoryview(b"XXXX" + bytes(section[4:])), "must start with b'EWGP'"),
        (resealed(body, 99), "format 1 or older, got 99; upgrade"),
        (memoryview(bytes(section[:-1]) + b"\x99"), "the file is damaged"),
        (resealed(body[:4] + b"XXXX" + body[8:]), "must have schema b'EWP1'"),
    ):
        with pytest.raises(InvalidBlob, match=message):
            serialize.read(memoryview(broken))


BREAKS: dict[str, tuple[Callable[[Plans], Plans], str]] = {
    "register": (lambda p: replace(p, code=(("+", 0, 10**6),)), "a register must be"),
    "divisor": (
        lambda p: replace(p, symbols=(replace(p.symbols[0], divisor=0),)),
        "must be found by a divisor and an offset, got 0 and 0",
    ),
    "input": (
        lambda p: replace(p, symbols=(replace(p.symbols[0], input=4),)),
        r"an input must be in \[0, 1\), got 4",
    ),
    "literal": (lambda p: replace(p, literals=(1 << 60,)), "a number must be"),
    "size": (
        lambda p: replace(p, buffers=(replace(p.buffers[0], size=6), *p.buffers[1:])),
        "a buffer's size must be a multiple of 4, got 6",
    ),
    "buffer": (
        lambda p: replace(
            p, dispatches=(replace(p.dispatches[0], buffers=(0, 1, 99)),)
        ),
        "a buffer must be in",
    ),
    "bindings": (
        lambda p: replace(
            p, dispatches=(replace(p.dispatches[0], params=()), *p.dispatches[1:])
        ),
        "must have the 4 bindings of its kernel, got 3",
    ),
    "line": (
        lambda p: replace(p, kernels=(replace(p.kernels[0], lines=(10**7,)),)),
        "a line must be in",
    ),
    "role": (
        lambda p: replace(p, ports=tuple(replace(q, buffer=1) for q in p.ports)),
        "must be an input",
    ),
    "write": (
        lambda p: replace(
            p,
            buffers=tuple(
                replace(b, role=Role.CONSTANT) if b.role is Role.SCRATCH else b
                for b in p.buffers
            ),
        ),
        "must write to no constant or input",
    ),
    "data": (
        lambda p: replace(p, constants=(replace(p.constants[0], shape=(1 << 20,)),)),
        "data must fill a buffer of",
    ),
    "variant": (
        lambda p: replace(p, profiles=(replace(p.profiles[0], variants=()),)),
        "variants must be 1 to 1024, got 0",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_plans_that_are_not_sound_are_refused(plans: Plans, name: str) -> None:
    broken, message = BREAKS[name]
    with pytest.raises(InvalidBlob, match=message):
        verify(broken(plans))


def test_grids_and_bindings_are_checked_when_sizes_are_known(plans: Plans) -> None:
    shapes = {at - len(plans.symbols) for port in plans.ports for at in port.shape}
    literals = (n if at in shapes else -1 for at, n in enumerate(plans.literals))
    large = replace(plans, literals=tuple(literals))
    made = FilePlanner(large, large.profiles[-1])
    with pytest.raises(InvalidBlob, match=r"a grid must be in \[0, 65535\]"):
        made.plan([(400, 64)])


def test_numbers_stay_within_what_every_player_computes_with(plans: Plans) -> None:
    power = [("*", 0, 0)]
    first = len(plans.symbols) + len(plans.literals)
    power += [("*", first + n, first + n) for n in range(4)]
    made = FilePlanner(replace(plans, code=tuple(power)), plans.profiles[-1])
    with pytest.raises(InvalidInput, match="numbers of at most 53 bits"):
        made.plan([(400, 64)])


def test_packed_constants_are_data_of_their_own() -> None:
    """A view of a constant is stored as the buffer holds it, under its own hash."""
    graph = ir.Graph()
    stored = np.arange(24, dtype=np.float32)

    def value(name: str, *shape: int, **more: str) -> ir.Ref:
        return ir.Ref(graph.add(ir.Value(name, DType.FLOAT32, shape, shape, **more)))

    w, x = value("w", 4, 6, data_key="w"), value("x", 6, 4)
    turned, z, y = value("turned", 6, 4), value("z", 6, 4), value("y", 6, 4)
    graph.inputs, graph.outputs = [x.id], [y.id]
    graph.calls = [
        ir.Call("aten.permute_copy.default", [w, [1, 0]], [turned.id]),
        ir.Call("aten.roll.default", [turned, [1], [0]], [z.id]),
        ir.Call("aten.add.Tensor", [z, x, 1], [y.id]),
    ]
    made = collect.collect(graph, [BASE], lambda key: stored.data)
    (data,) = made.data.values()
    assert data.view(np.float32).tolist() == stored.reshape(4, 6).T.reshape(-1).tolist()
    (constant,) = made.plans.constants
    assert constant.data_key in made.data
    assert constant.shape == (24,)
    verify(made.plans)
