"""Every file that ever broke something, and how it must end now.

Cases are edits of an honest program, or graphs written out here; what a run of mutants
has found and no edit describes is a file in `corpus/` (`reproducers.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import flatbuffers

from executorch_webgpu import ir
from executorch_webgpu.ir import serialize
from executorch_webgpu.ir._schema import schema_generated as fb
from executorch_webgpu.ir.dtypes import DType, Storage
from executorch_webgpu.portable.plans import Plans

from . import mutate_plans, reproducers
from .mutate import Mutant, parts
from .mutate_bytes import sealed
from .programs import Program

_FILES = Path(__file__).with_name("corpus")

Edit = Callable[[ir.Graph], None]
PlansEdit = Callable[[Plans], Plans]


@dataclass(frozen=True)
class Case:
    """A mutant, and how it must end."""

    mutant: Mutant
    kind: str = "refused"  # as in `oracle.Outcome`; "": any but a finding
    level: str = "plan"  # where it is played


def cases(programs: dict[str, Program]) -> dict[str, Case]:
    """All cases by name."""
    found = {**_graphs(), **_bytes(programs), **_edits(programs), **_data(programs)}
    found |= {**_plans(programs), **_plan_bytes(programs)}
    for path in sorted(_FILES.glob("*.json")):
        found[path.stem] = Case(reproducers.read(path).mutant, "")
    return found


def _relu(
    extent: ir.Dim,
    bound: int,
    high: int = 64,
    name: str = "x",
    dim_order: tuple[int, ...] = (),
) -> ir.Graph:
    """One call, with what is said of the size of its operand and its result."""

    def value(name: str) -> ir.Value:
        return ir.Value(name, DType.FLOAT32, (extent, 9), (bound, 9), dim_order)

    return ir.Graph(
        values=[value(name), value("y")],
        calls=[ir.Call("aten.relu.default", [ir.Ref(0)], [1])],
        inputs=[0],
        outputs=[1],
        symbols={"s0": (2, high)},
    )


def _long_attention(tokens: int) -> ir.Graph:
    """Attention over as many tokens as the caller likes, up to a maximum."""

    def value(name: str) -> ir.Value:
        shape = (1, 2, "s0", 16)
        return ir.Value(name, DType.FLOAT32, shape, (1, 2, tokens, 16))

    args: list[ir.Arg] = [ir.Ref(i) for i in range(3)]
    args += [None, 0.0, True, None, False]
    name = "aten.scaled_dot_product_attention.default"
    return ir.Graph(
        values=[value(name) for name in "qkvy"],
        calls=[ir.Call(name, args, [3])],
        inputs=[0, 1, 2],
        outputs=[3],
        symbols={"s0": (2, tokens)},
    )


def _halved_by_dequantizing() -> ir.Graph:
    """Groups of 3 that become half as many elements as they are."""

    def value(name: str, dtype: DType, rows: ir.Dim, columns: int) -> ir.Value:
        return ir.Value(name, dtype, (rows, columns), (64, columns))

    args: list[ir.Arg] = [ir.Ref(0), ir.Ref(1), None, -8, 7, DType.INT8, 3]
    args.append(DType.FLOAT32)
    name = "quantized_decomposed.dequantize_per_channel_group.default"
    return ir.Graph(
        values=[
            value("x", DType.INT8, "s0", 9),
            value("scales", DType.FLOAT32, "s0", 3),
            ir.Value("y", DType.FLOAT32, ("s0 // 2", 9), (32, 9)),
        ],
        calls=[ir.Call(name, args, [2])],
        inputs=[0, 1],
        outputs=[2],
        symbols={"s0": (2, 64)},
    )


def _graphs() -> dict[str, Case]:
    """Graphs written out here."""

    def of(graph: ir.Graph, kind: str = "refused") -> Case:
        # Planned for the live shape of this program's input, (11, 9).
        return Case(Mutant("reductions", serialize.write(graph), {}), kind)

    extents = {
        "power_tower": "9**9**9",
        "power_of_a_symbol": "s0**99999",
        "division_by_zero": "s0 // (s0 - s0)",
        "unknown_symbol": "s9",
        "superscript_digit": "²",
        "two_signs": "--5",
        "call_without_arguments": "min()",
        "call_of_a_number": "min(*s0)",
        "infinite_float": "floor(1e999)",
        "nested_parentheses": "(" * 500 + "s0" + ")" * 500,
        "three_thousand_signs": "-" * 3_000 + "s0",
        "text_times_symbol": "'a' * 999999999",
        "five_thousand_digits": "1" * 5_000,
        "name_of_100_kB": "x" * 100_000,
    }
    found = {name: of(_relu(extent, 64)) for name, extent in extents.items()}
    found |= {
        "size_that_decreases": of(_relu("1000002 - s0", 2, 1_000_000)),
        "bound_below_extent": of(_relu("s0", 2)),
        "negative_bound": of(_relu("s0", -1)),
        "symbol_of_a_wide_range": of(_relu("s0 // 1000 * 2 + 2", 6002, 3_000_000)),
        "order_of_other_dimensions": of(_relu("s0", 64, dim_order=(7,))),
        "range_that_ends_before_it_begins": of(_relu("s0", 64, -5)),
        "more_elements_than_their_bound": of(_halved_by_dequantizing()),
        "many_tokens": of(_long_attention(131_072), ""),
    }
    return found


def _nested(depth: int, width: int) -> bytes:
    """A call whose argument is a list of lists of lists, which at every depth are one
    and the same `width` times: a few bytes for each depth."""
    builder = flatbuffers.Builder(4096)

    def table(items: int) -> int:
        fb.ArgStart(builder)
        fb.ArgAddKind(builder, fb.ArgKind.List)
        fb.ArgAddItems(builder, items)
        return int(fb.ArgEnd(builder))

    def vector(offsets: list[int]) -> int:
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())

    arg = table(vector([]))
    for _ in range(depth):
        arg = table(vector([arg] * width))
    name, args = builder.CreateString("aten.relu.default"), vector([arg])
    fb.CallStart(builder)
    fb.CallAddOp(builder, name)
    fb.CallAddArgs(builder, args)
    calls = vector([fb.CallEnd(builder)])
    writer = builder.CreateString("test")
    fb.GraphStart(builder)
    fb.GraphAddFormat(builder, 1)
    fb.GraphAddWriter(builder, writer)
    fb.GraphAddCalls(builder, calls)
    builder.Finish(fb.GraphEnd(builder), file_identifier=b"EWG1")
    return bytes(builder.Output())


def _bytes(programs: dict[str, Program]) -> dict[str, Case]:
    """Bytes that no graph is written as."""
    body = programs["views"].blob[16:]
    bodies = {
        "shared_subtrees": _nested(40, 2),
        "shared_subtrees_of_many": _nested(4, 1000),
        "hundred_thousand_brackets": _nested(100_000, 1),
        "no_flatbuffer": b"",
        "half_a_flatbuffer": body[: len(body) // 2],
        "offsets_that_leave_the_file": body[:4] + b"\xff\xff\xff\x7f" * 40 + body[164:],
        "a_root_inside_itself": b"\x04\0\0\0" * 64,
    }
    return {
        name: Case(Mutant("views", sealed(body), programs["views"].data))
        for name, body in bodies.items()
    }


def _edited(program: Program, edit: Edit) -> Mutant:
    graph = serialize.read(program.blob)
    edit(graph)
    return Mutant(program.name, serialize.write(graph), program.data)


def _find(graph: ir.Graph, op: str) -> ir.Call:
    return next(call for call in graph.calls if call.op == op)


def _mixed_strides(graph: ir.Graph) -> None:
    """Whose first and last element are the same, and those between are far away."""
    _find(graph, "aten.as_strided_copy.default").args[2] = [-300_000, 200_000]


def _large_dim(graph: ir.Graph) -> None:
    call = _find(graph, "aten.select_copy.int")
    index = next(i for i in graph.inputs if graph.values[i].dtype is DType.INT64)
    call.op, call.args = "aten.index_select.default", [call.args[0], 2**31 - 1]
    call.args.append(ir.Ref(index))


def _undefined(graph: ir.Graph) -> None:
    graph.calls.reverse()


def _ids_beyond_the_end(graph: ir.Graph) -> None:
    graph.outputs[0] = 2**32 - 1


def _text_as_number(graph: ir.Graph) -> None:
    _find(graph, "aten.mul.Tensor").args[1] = "1.0; } fn other() {"


def _infinite_number(graph: ir.Graph) -> None:
    _find(graph, "aten.mul.Tensor").args[1] = float("inf")


def _no_dilation(graph: ir.Graph) -> None:
    """By which a kernel goes from one tap of a window to the next."""
    _find(graph, "aten.max_pool2d_with_indices.default").args[4] = [0, 1]


def _dilation_of_three(graph: ir.Graph) -> None:
    _find(graph, "aten.max_pool2d_with_indices.default").args[4] = [1, 1, 0]


def _long_rows(graph: ir.Graph) -> None:
    """Of a norm: a kernel would go on for as many elements."""
    _find(graph, "aten.layer_norm.default").args[1] = [2**31 - 1]


def _escapes_in_names(graph: ir.Graph) -> None:
    for value in graph.values:
        value.name = "\x1b[31m\0"
    graph.values[graph.inputs[0]].shape = (0, 0)


def _state_of_another_size(graph: ir.Graph) -> None:
    (state,) = graph.mutations
    value = graph.values[state]
    graph.values[state] = replace(value, shape=(3,), bound=(3,))


def _two_states_of_one_name(graph: ir.Graph) -> None:
    """They would have one buffer, of the size of the smaller."""
    (state,) = graph.mutations
    large = replace(graph.values[state], shape=(100_000,), bound=(100_000,))
    read = graph.add(large)
    made = graph.add(replace(large, state="", data_key=""))
    graph.calls.append(ir.Call("aten.relu.default", [ir.Ref(read)], [made]))
    graph.mutations[read] = made


def _integer_for_a_tensor(graph: ir.Graph) -> None:
    """An output that the program declares as a tensor."""
    graph.outputs[0] = next(i for i, v in enumerate(graph.values) if v.is_int)


def _undeclared_state(graph: ir.Graph) -> None:
    graph.mutations[graph.inputs[0]] = graph.outputs[0]


def _edits(programs: dict[str, Program]) -> dict[str, Case]:
    """Edits of honest programs."""
    planned: dict[str, tuple[str, Edit]] = {
        "view_beyond_its_constant": ("views", _mixed_strides),
        "dimension_2_to_the_31": ("lookup", _large_dim),
        "read_before_written": ("views", _undefined),
        "output_that_is_no_value": ("views", _ids_beyond_the_end),
        "wgsl_for_a_number": ("views", _text_as_number),
        "window_that_never_ends": ("conv", _no_dilation),
        "rows_longer_than_their_tensor": ("reductions", _long_rows),
        "window_of_three_dimensions_for_two": ("conv", _dilation_of_three),
        "state_of_another_size": ("integers", _state_of_another_size),
        "two_states_of_one_name": ("integers", _two_states_of_one_name),
        "input_that_is_mutated": ("elementwise", _undeclared_state),
    }
    run: dict[str, tuple[str, Edit]] = {
        "heap_read_by_a_view": ("views", _mixed_strides),
        "integer_for_a_tensor": ("integers", _integer_for_a_tensor),
        "write_beyond_a_state": ("integers", _two_states_of_one_name),
        "escape_sequences_in_names": ("views", _escapes_in_names),
    }
    found = {
        name: Case(_edited(programs[program], edit))
        for name, (program, edit) in planned.items()
    }
    found["infinite_number"] = Case(
        _edited(programs["views"], _infinite_number), "ok", "run"
    )
    for name, (program, edit) in run.items():
        found[name] = Case(_edited(programs[program], edit), level="run")
    return found


def _data(programs: dict[str, Program]) -> dict[str, Case]:
    """Named data that is not what its key says."""
    program = programs["conv"]
    key, content = max(program.data.items(), key=lambda item: len(item[1]))
    flipped = content[:100] + bytes([content[100] ^ 1]) + content[101:]
    changes = {
        "weights_of_another_under_this_key": bytes(len(content)),
        "one_bit_of_a_weight": flipped,
        "weight_that_is_too_short": content[:-1],
        "weight_that_is_too_long": content + bytes(4),
    }
    return {
        name: Case(
            Mutant("conv", program.blob, {**program.data, key: changed}), level="run"
        )
        for name, changed in changes.items()
    }


def _row(plans: Plans, table: str, at: int, **fields: object) -> Plans:
    """Plans with other fields in a row of a table."""
    rows = list(getattr(plans, table))
    rows[at] = replace(rows[at], **fields)
    return replace(plans, **{table: tuple(rows)})


def _one_content_twice(plans: Plans) -> Plans:
    """It was counted twice, and given back once."""
    found = plans.constants
    one, other = next(
        (one, other)
        for one, other in combinations(range(len(found)), 2)
        if found[one].shape == found[other].shape
    )
    return _row(plans, "constants", other, data_key=found[one].data_key)


def _key_of_another_constant(plans: Plans) -> Plans:
    """Nothing says what is in it, so that it would be what has this key."""
    return replace(plans, constants=())


def _constant_of_another_size(plans: Plans) -> Plans:
    """Whoever has the same constant would be given this buffer."""
    at = plans.constants[0].buffer
    return _row(plans, "buffers", at, size=plans.buffers[at].size + 16)


def _write_to_a_constant(plans: Plans) -> Plans:
    constant = plans.constants[0].buffer
    row = next(row for row in plans.dispatches if constant in row.buffers)
    access = list(plans.kernels[row.kernel].access)
    access[row.buffers.index(constant)] = "write"
    return _row(plans, "kernels", row.kernel, access=tuple(access))


def _two_buffers_of_one_key(plans: Plans) -> Plans:
    ports = [plans.ports[at] for at in plans.profiles[0].variants[0].inputs]
    one, other = (port.buffer for port in ports if port.buffer >= 0)
    return _row(plans, "buffers", other, key=plans.buffers[one].key)


def _large_call_number(plans: Plans) -> Plans:
    return _row(plans, "dispatches", 0, call=(1 << 32) - 1)


def _texts_without_end(plans: Plans) -> Plans:
    """A few bytes for each of its megabytes."""
    lines = (*plans.lines, "// " + "x" * 10_000)
    kernel = replace(plans.kernels[0], lines=(len(plans.lines),) * 100)
    return replace(plans, lines=lines, kernels=(*plans.kernels, *[kernel] * 1000))


def _parameters_without_end(plans: Plans) -> Plans:
    at = next(at for at, each in enumerate(plans.dispatches) if each.params)
    made = _row(plans, "dispatches", at, params=(0,) * 4096)
    variant = replace(plans.profiles[0].variants[0], dispatches=(at,) * 32768)
    profile = replace(plans.profiles[0], variants=(variant,))
    return replace(made, profiles=(profile,))


def _ports_without_end(plans: Plans) -> Plans:
    port = replace(plans.ports[0], buffer=-1, limits=())
    variant = plans.profiles[0].variants[0]
    variant = replace(variant, inputs=(0,) * 100_000)
    profile = replace(plans.profiles[0], variants=(variant,))
    return replace(plans, ports=(port, *plans.ports[1:]), profiles=(profile,))


def _output_without_a_buffer(plans: Plans) -> Plans:
    output = plans.profiles[0].variants[0].outputs[0]
    return _row(plans, "ports", output, buffer=-1)


def _int_for_a_tensor(plans: Plans) -> Plans:
    fields = {"is_int": True, "dtype": DType.INT64, "storage": Storage.I32}
    return _row(plans, "ports", plans.profiles[0].variants[0].inputs[0], **fields)


def _size_of_no_dimension(plans: Plans) -> Plans:
    return _row(plans, "symbols", 0, dim=9)


def _escapes_in_a_label(plans: Plans) -> Plans:
    return _row(plans, "dispatches", 0, label="\x1b[31m", kernel=99)


def _kernel_that_does_not_compile(plans: Plans) -> Plans:
    line = plans.kernels[0].lines[0]
    lines = list(plans.lines)
    lines[line] = "\x1b[31m }" + "x" * 5000
    return replace(plans, lines=tuple(lines))


def _kernel_that_speaks_of_a_lost_device(plans: Plans) -> Plans:
    """wgpu quotes it, and all other methods would have to be loaded again."""
    lines = list(plans.lines)
    lines[plans.kernels[0].lines[0]] = "} // Parent device is lost"
    made = _row(plans, "kernels", 0, label="device is lost")
    return replace(made, lines=tuple(lines))


def _unbounded_grid(plans: Plans) -> Plans:
    return replace(plans, literals=(1 << 53,) * len(plans.literals))


def _plans(programs: dict[str, Program]) -> dict[str, Case]:
    """Edits of plans that programs carry."""
    edits: dict[str, tuple[str, PlansEdit]] = {
        "content_of_no_constant": ("rotary", _key_of_another_constant),
        "constant_of_another_size": ("lookup", _constant_of_another_size),
        "write_to_a_constant": ("rotary", _write_to_a_constant),
        "two_buffers_of_one_key": ("elementwise", _two_buffers_of_one_key),
        "call_of_a_large_number": ("lookup", _large_call_number),
        "kernels_without_end": ("elementwise", _texts_without_end),
        "parameters_without_end": ("elementwise", _parameters_without_end),
        "ports_without_end": ("elementwise", _ports_without_end),
        "output_without_a_buffer": ("elementwise", _output_without_a_buffer),
        "int_for_a_planned_tensor": ("elementwise", _int_for_a_tensor),
        "size_of_no_dimension": ("elementwise", _size_of_no_dimension),
        "escape_sequences_in_a_label": ("elementwise", _escapes_in_a_label),
    }
    run: dict[str, tuple[str, PlansEdit, str]] = {
        "one_content_twice": ("rotary", _one_content_twice, ""),
        "kernel_that_does_not_compile": (
            "lookup",
            _kernel_that_does_not_compile,
            "refused",
        ),
        "kernel_that_speaks_of_a_lost_device": (
            "lookup",
            _kernel_that_speaks_of_a_lost_device,
            "refused",
        ),
        "grid_of_53_bits": ("lookup", _unbounded_grid, "refused"),
    }

    def made(name: str, edit: PlansEdit) -> Mutant:
        program = programs[f"{name} with plans"]
        front, _, plans = parts(program.blob)
        return Mutant(program.name, edit(plans), program.data, front=front)

    found = {name: Case(made(*edited)) for name, edited in edits.items()}
    for name, (program, edit, kind) in run.items():
        found[name] = Case(made(program, edit), kind, "run")
    return found


def _plan_bytes(programs: dict[str, Program]) -> dict[str, Case]:
    """Bytes that no plans are written as, and what is around them."""
    program = programs["lookup with plans"]
    front, body, _ = parts(program.blob)
    root = int.from_bytes(body[:4], "little")
    # The length of a text is before it.
    text = body.index(b"fn main") - 4
    sections = {
        "plans_with_a_table_before_the_first_byte": _patched(body, root, 2**31 - 1),
        "plans_with_a_text_beyond_the_end": _patched(body, text, 2**28),
        "plans_with_a_root_inside_itself": b"\x04\0\0\0EWP1" * 64,
        "half_of_the_plans": body[: len(body) // 2],
        "no_plans_but_a_header": b"",
    }
    blobs = {
        name: mutate_plans.sealed(front, section) for name, section in sections.items()
    }
    start = len(front)
    blobs |= {
        "plans_of_a_newer_format": _patched(program.blob, start + 4, 2),
        "plans_of_another_magic": _patched(program.blob, start, 0),
        "plans_that_are_cut_off": program.blob[:-1],
        "no_plans": front,
    }
    return {
        name: Case(Mutant(program.name, blob, program.data))
        for name, blob in blobs.items()
    }


def _patched(content: bytes, at: int, word: int) -> bytes:
    return content[:at] + word.to_bytes(4, "little") + content[at + 4 :]
