"""Packings of matrices: every element in its place, and zeros between."""

from __future__ import annotations

import numpy as np
import pytest

from executorch_webgpu import packing
from executorch_webgpu.ops import matmul_lanes  # noqa: F401


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
    packed = packing.pack("matmul_columns", data, ())
    *batch, depth, columns = shape
    assert packed.shape == (*batch, -(-columns // 32), depth, 32)
    assert packed.flags["C_CONTIGUOUS"]
    assert packed.dtype == data.dtype
    plain = np.swapaxes(packed, -3, -2).reshape(*batch, depth, -1)
    np.testing.assert_array_equal(plain[..., :columns], data)
    assert not plain[..., columns:].any()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "shape", [(8, 16), (7, 16), (8, 13), (1, 1), (2, 9, 5), (2, 16, 4)]
)
def test_rows(shape: tuple[int, ...], transposed: bool) -> None:
    data = matrices(shape, transposed)
    packed = packing.pack("matmul_rows", data, (8,))
    *batch, height, depth = shape
    assert packed.shape == (*batch, -(-height // 8), -(-depth // 4), 8, 4)
    assert packed.flags["C_CONTIGUOUS"]
    plain = np.swapaxes(packed, -3, -2).reshape(*batch, -(-height // 8) * 8, -1)
    np.testing.assert_array_equal(plain[..., :height, :depth], data)
    assert not plain[..., height:, :].any()
    assert not plain[..., depth:].any()
