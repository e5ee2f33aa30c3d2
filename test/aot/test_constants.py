"""Constant tensors of a graph: read, added, looked up, and what is stored of them."""

from __future__ import annotations

import pytest
import torch

from executorch_webgpu import ir
from executorch_webgpu.errors import Unsupported
from executorch_webgpu.export.constants import Constants
from executorch_webgpu.ir.dtypes import DType


def made() -> Constants:
    return Constants(ir.Graph())


def test_a_constant_is_found_by_its_value():
    constants = made()
    tensor = torch.randn(3, 7)
    added = constants.add("table", tensor.t())
    (value,) = constants.graph.values
    assert (value.name, value.dtype, value.shape) == ("table", DType.FLOAT32, (7, 3))
    assert torch.equal(constants.of(added), tensor.t())
    assert constants.of(3) is None
    computed = constants.graph.add(ir.Value("x", DType.FLOAT32, (3,), (3,)))
    assert constants.of(ir.Ref(computed)) is None
    constants.fill(computed, torch.ones(3))
    assert torch.equal(constants.of(ir.Ref(computed)), torch.ones(3))


def test_what_a_state_begins_with_is_no_constant():
    constants = made()
    state = constants.add("cache", torch.ones(3))
    constants.graph.values[state.id].state = "cache"
    assert constants.of(state) is None
    assert [len(tensor) for tensor in constants.used().values()] == [3]


def test_numbers_may_be_constants_of_one_element():
    constants = made()
    assert constants.number(2) == 2.0
    assert constants.number(constants.add("one", torch.tensor([[1.5]]))) == 1.5
    assert constants.number(constants.add("two", torch.ones(2))) is None
    assert constants.number(None) is None


def test_equal_data_is_stored_once_and_unused_data_not():
    constants = made()
    for _ in range(2):
        constants.add("a", torch.arange(5))
    gone = constants.add("b", torch.arange(7))
    assert len(constants.used()) == 2
    constants.graph.values[gone.id].data_key = ""
    (stored,) = constants.used().values()
    assert torch.equal(stored, torch.arange(5))


def test_keys_are_hashes_that_files_of_any_age_have():
    """sha256(b"torch.float32(2, 3)" and the bytes), as it was in the first format."""
    assert (
        made().key(torch.arange(6.0).reshape(2, 3))
        == "webgpu_e20933188a476ce2418266391f2f8755"
    )
    empty = torch.empty(0, dtype=torch.bfloat16)
    assert made().key(empty) == "webgpu_e1e1cba52298223a552e2fbfc11e9a9d"


def test_integers_beyond_32_bits_are_refused():
    with pytest.raises(Unsupported, match=f"must fit int32, got {2**31}"):
        made().add("wide", torch.tensor([1, 2**31]))
