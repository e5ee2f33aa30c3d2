"""Packings of matrices: every element at its index, and zeros between."""

from __future__ import annotations

import numpy as np
import pytest

from executorch_webgpu.errors import InvalidBlob
from executorch_webgpu.ir.dtypes import DType, Storage, to_storage
from executorch_webgpu.plan import host_packing, registry

registry.all_ops()  # loads every op, and with it the packings


def matrices(shape: tuple[int, ...], transposed: bool) -> np.ndarray:
    """Numbers from 1 on, so that a zero can only be filling."""
    numbers = np.arange(1, np.prod(shape) + 1, dtype=np.float32)
    if not transposed:
        return numbers.reshape(shape)
    *batch, rows, columns = shape
    return np.swapaxes(numbers.reshape(*batch, columns, rows), -1, -2)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "shape", [(7, 64), (7, 37), (1, 1), (5, 31), (3, 33), (2, 3, 65), (2, 1, 4, 32)]
)
def test_columns(shape: tuple[int, ...], transposed: bool) -> None:
    data = matrices(shape, transposed)
    packed = host_packing.pack("matmul_columns", data, ())
    *batch, depth, columns = shape
    assert packed.shape == (*batch, -(-columns // 32), depth, 32)
    assert packed.flags["C_CONTIGUOUS"]
    assert packed.dtype == data.dtype
    plain = np.swapaxes(packed, -3, -2).reshape(*batch, depth, -1)
    np.testing.assert_array_equal(plain[..., :columns], data)
    assert not plain[..., columns:].any()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("loads", "lanes"), [(1, 1), (4, 2), (2, 4), (1, 8)])
@pytest.mark.parametrize("shape", [(8, 16), (7, 16), (1, 1), (2, 9, 5), (2, 16, 4)])
def test_rows(shape: tuple[int, ...], loads: int, lanes: int, transposed: bool) -> None:
    data = matrices(shape, transposed)
    packed = host_packing.pack("matmul_rows", data, (loads, lanes))
    *batch, height, depth = shape
    rows = loads * lanes
    assert packed.shape == (*batch, -(-height // rows), depth, lanes, loads)
    assert packed.flags["C_CONTIGUOUS"]
    for row in range(-(-height // rows) * rows):
        load, lane = divmod(row % rows, lanes)
        found = packed[..., row // rows, :, lane, load]
        expected = data[..., row, :] if row < height else np.zeros_like(found)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("flip", [0, 1])
@pytest.mark.parametrize(("loads", "lanes"), [(1, 1), (4, 2), (2, 4)])
def test_taps(loads: int, lanes: int, flip: int) -> None:
    shape = (2, 9, 3, 1, 2, 4)  # groups, filters, channels, z, y, x
    data = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    packed = host_packing.pack("conv_taps", data, (loads, lanes, flip))
    rows = loads * lanes
    blocks = -(-9 // rows)
    assert packed.shape == (2, blocks, 1, 2, 4, 3, lanes, loads)
    for filter_ in range(blocks * rows):
        load, lane = divmod(filter_ % rows, lanes)
        found = packed[:, filter_ // rows, ..., lane, load]
        if filter_ >= 9:
            assert not found.any()
            continue
        taps = data[:, filter_][..., ::-1, ::-1, ::-1] if flip else data[:, filter_]
        np.testing.assert_array_equal(found, np.moveaxis(taps, 1, -1))


def test_a_constant_that_no_kernel_could_read_is_an_error_of_the_file() -> None:
    vector = np.zeros(5, np.float32)
    with pytest.raises(InvalidBlob, match=r"of \[5\] must be one that conv_taps packs"):
        host_packing.pack("conv_taps", vector, (4, 4, 0))
    with pytest.raises(
        InvalidBlob, match="int64 values must fit int32, got 1099511627776"
    ):
        to_storage(np.array([3, 2**40]), DType.INT64, Storage.I32)
