"""Stores that share buffers by live range, and what strided views can express."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from executorch_webgpu.ir.dtypes import DType, Storage
from executorch_webgpu.plan.plan import Role
from executorch_webgpu.plan.scratch import LiveRange, Pool, peak
from executorch_webgpu.plan.tensor import Store, Tensor, collapse, row_major

stores = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 5)).map(
        lambda t: LiveRange(16 * t[0], t[1], t[1] + t[2])
    ),
    max_size=20,
)


@given(stores, stores)
def test_what_is_alive_together_never_shares_a_buffer(one, two):
    pool = Pool()
    for batch in (one, two, one):
        before = list(pool.sizes)
        slots = pool.assign(batch)
        assert pool.sizes[: len(before)] == before
        for a in batch:
            assert pool.sizes[slots[a]] >= a.size
            for b in batch:
                if a is not b and a.first <= b.last and b.first <= a.last:
                    assert slots[a] != slots[b]


def test_the_same_stores_get_the_same_buffers_again():
    pool = Pool()
    ranges = ((64, 0, 1), (64, 1, 2), (32, 2, 3))
    first, again = (pool.assign([LiveRange(*r) for r in ranges]) for _ in range(2))
    assert list(first.values()) == list(again.values())
    assert sum(pool.sizes) == 128


def test_a_small_store_between_large_ones_needs_no_buffer_of_its_own():
    """Two wide results, a narrow one, two wide ones, as in an inverted residual."""
    pool = Pool()
    sizes = (64, 64, 16, 64, 64)
    pool.assign([LiveRange(size, at, at + 1) for at, size in enumerate(sizes)])
    assert pool.sizes == [64, 64]


def test_peak_is_the_largest_sum_alive():
    ranges = ((64, 0, 1), (64, 1, 2), (16, 3, 3))
    assert peak([LiveRange(*r) for r in ranges]) == 128


def tensor(*shape: int) -> Tensor:
    strides, store = row_major(shape), Store(Role.SCRATCH, 16)
    return Tensor(shape, DType.FLOAT32, 0, Storage.F32, strides, store)


def test_views_say_what_strides_can_say():
    x = tensor(2, 3, 4)
    turned = x.permute([0, 2, 1])
    assert turned.try_view((2, 12)) is None
    split = turned.try_view((2, 2, 2, 3))
    assert split is not None
    assert split.strides == (12, 2, 1, 4)
    assert x.slice(1, 1, 2).try_view((2, 8)).strides == (12, 1)
    assert x.slice(1, 1, 2).try_view((4, 4)) is None
    assert x.select(2, 1).offset == 1


def test_collapse_merges_what_all_operands_walk_alike():
    merged = collapse((2, 3, 4), [(12, 4, 1), (0, 4, 1)])
    assert merged.shape == (2, 12)
    assert merged.strides == ((12, 1), (0, 1))
