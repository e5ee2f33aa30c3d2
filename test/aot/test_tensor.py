"""Strided views stay inside what they are views of, whatever a file says."""

from __future__ import annotations

import pytest

from executorch_webgpu import ir
from executorch_webgpu.errors import Unsupported
from executorch_webgpu.ir.dtypes import DType
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.constants import Constants
from executorch_webgpu.plan.plan import Plan
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.plan.tensor import ConstantSource, reach


def strided(shape: tuple[int, ...], *args: ir.Arg) -> Plan:
    """The plan of as_strided of 12 elements, whose result is said to have `shape`."""
    graph = ir.Graph(inputs=[0], outputs=[1])
    for name, extents in (("x", (12,)), ("y", shape)):
        graph.add(ir.Value(name, DType.FLOAT32, extents, extents))
    graph.calls = [ir.Call("aten.as_strided.default", [ir.Ref(0), *args], [1])]
    return Planner(graph, AOT_CAPS).upper_bound()


def test_a_view_reaches_by_the_sign_of_its_strides() -> None:
    assert reach((3, 4), (4, 1), 0) == (0, 11)
    assert reach((3, 4), (-4, 1), 8) == (0, 11)
    assert reach((2, 2), (-12, 13), 0) == (-12, 13)
    assert reach((), (), 5) == (5, 5)


@pytest.mark.parametrize(
    ("shape", "args", "requirement"),
    [
        ((2, 2), ([2, 2], [-12, 13], 0), r"must lie in \[0, 12\), got \[-12, 13\]"),
        ((2, 2), ([2, 2], [1, 1], -1), r"must lie in \[0, 12\), got \[-1, 1\]"),
        ((2, 6), ([6, 2], [1, 6], 0), r"size must be \[2, 6\], got \[6, 2\]"),
        ((2, 6), ([2, 6], [6], 0), "strides must be 2, got 1"),
    ],
)
def test_as_strided_stays_inside(
    shape: tuple[int, ...], args: tuple[ir.Arg, ...], requirement: str
) -> None:
    strided((2, 6), [2, 6], [6, 1], 0)
    with pytest.raises(Unsupported, match=requirement):
        strided(shape, *args)


def test_constants_of_another_type_or_shape_are_others() -> None:
    constants = Constants(f16=True)
    stores = [
        constants.whole(ConstantSource("key", dtype, shape), DType.FLOAT32)
        for dtype, shape in (
            (DType.FLOAT32, (2, 3)),
            (DType.FLOAT32, (2, 3)),
            (DType.FLOAT32, (64, 3)),
            (DType.INT32, (2, 3)),
        )
    ]
    assert stores[0] is stores[1]
    assert len({store.key for store in stores}) == 3
    assert [store.size for store in stores] == [32, 32, 768, 32]
