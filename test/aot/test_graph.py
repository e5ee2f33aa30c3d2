"""Walking and mapping the arguments of calls."""

from __future__ import annotations

from executorch_webgpu import ir
from executorch_webgpu.ir.dtypes import DType

NESTED: ir.Arg = [ir.Ref(3), [1, None, [ir.Ref(5), "text"]], []]


def test_leaves_are_all_that_is_no_list():
    assert list(ir.leaves(NESTED)) == [ir.Ref(3), 1, None, ir.Ref(5), "text"]
    assert list(ir.leaves(None)) == [None]
    assert list(ir.refs(NESTED)) == [3, 5]


def test_mapping_keeps_how_lists_nest():
    mapped = ir.map_arg(NESTED, lambda leaf: isinstance(leaf, ir.Ref))
    assert mapped == [True, [False, False, [True, False]], []]
    assert ir.map_arg(2, str) == "2"


def test_a_call_is_mapped_with_its_steps():
    step = ir.Step("aten.add.Tensor", [ir.Local(-1), ir.Ref(5)], DType.FLOAT32)
    call = ir.Call("aten.cat.default", [[ir.Ref(3), ir.Ref(5)], 0], [7], [step])
    assert list(ir.call_inputs(call)) == [3, 5, 5]
    moved = call.map_args(lambda leaf: ir.Ref(9) if leaf == ir.Ref(5) else leaf)
    assert list(ir.call_inputs(moved)) == [3, 9, 9]
    assert (moved.outputs, list(ir.call_inputs(call))) == ([7], [3, 5, 5])
