"""Torch's dtypes to `DType`, which has the same names, and back."""

from __future__ import annotations

import torch

from ..errors import Unsupported
from ..ir.dtypes import DType

_DTYPES: dict[torch.dtype, DType] = {getattr(torch, d.label): d for d in DType}
_TORCH = {dtype: name for name, dtype in _DTYPES.items()}


def from_torch(dtype: torch.dtype) -> DType:
    if dtype not in _DTYPES:
        raise Unsupported(f"a type must be known, got {dtype}")
    return _DTYPES[dtype]


def to_torch(dtype: DType) -> torch.dtype:
    return _TORCH[dtype]


def dtype_of(tensor: torch.Tensor) -> DType:
    if tensor.dtype not in _DTYPES:
        raise Unsupported(f"a tensor must be of a known type, got {tensor.dtype}")
    return _DTYPES[tensor.dtype]
