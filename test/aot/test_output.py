"""Output, which an op function gets: its tensor is made once, in its type or place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from executorch_webgpu import ir
from executorch_webgpu.ir.dtypes import DType, Storage
from executorch_webgpu.plan.buffers import Buffers
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.output import Epilogue, Place
from executorch_webgpu.plan.plan import Role
from executorch_webgpu.plan.tensor import ConstantSource, Store

CAST = ir.Step("aten._to_copy.default", [ir.Local(-1)], DType.FLOAT16)


def test_an_output_is_made_once_and_read_only_then():
    buffers = Buffers(AOT_CAPS, {})
    out = buffers.output((2, 3), DType.FLOAT32)
    with pytest.raises(AssertionError, match="must be written before it is read"):
        out.tensor  # noqa: B018
    buffers.allocate(out)
    with pytest.raises(AssertionError, match="must be made once"):
        out.becomes(buffers.temp((2, 3), DType.FLOAT32))


def test_a_copy_on_other_terms_is_the_same_output():
    """The elements are stored as the epilogue leaves them."""
    buffers = Buffers(AOT_CAPS, {})
    out = buffers.output((5,), DType.FLOAT16)
    floats = replace(
        out, dtype=DType.FLOAT32, epilogue=Epilogue((CAST,), {}, DType.FLOAT16)
    )
    buffers.allocate(floats)
    assert out.tensor is floats.tensor
    assert (out.tensor.dtype, out.tensor.storage) == (DType.FLOAT16, Storage.F16)
    assert out.tensor.store.size == 16


def test_an_output_takes_its_place_unless_it_is_written_in_pieces():
    buffers, whole = Buffers(AOT_CAPS, {}), Store(Role.SCRATCH, 96)
    place = Place(whole, (4, 6), 2, 3, 6, False)
    out = replace(buffers.output((4, 3), DType.FLOAT32), place=place)
    buffers.allocate(out)
    assert out.taken_place is place
    assert (out.tensor.strides, out.tensor.offset) == ((6, 1), 2)
    other = replace(buffers.output((4, 3), DType.FLOAT32), place=place)
    assert buffers.whole(other).store is not whole
    assert other.taken_place is None


def test_integers_seen_as_floats_are_a_buffer_of_their_own():
    buffers = Buffers(AOT_CAPS, {})
    source = ConstantSource("codes", DType.INT8, (8,))
    codes = buffers.over(buffers.output((8,), DType.INT8), source)
    floats = replace(codes, dtype=DType.FLOAT32, storage=Storage.F32)
    stores = [buffers.store_of(x) for x in (codes, floats, codes)]
    assert stores[0] is stores[2]
    assert stores[0] is not stores[1]
