"""The key of a constant's bytes in a program's named data: a hash of what they are.

Export stores a tensor under this key, and load computes it again from the bytes, type
and shape that it finds: equal keys are equal constants, whichever program they are in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .dtypes import DType

if TYPE_CHECKING:
    from typing_extensions import Buffer


def content_key(dtype: DType, shape: Sequence[int], pieces: Iterable[Buffer]) -> str:
    """The key of row-major elements, whose bytes come in pieces."""
    digest = hashlib.sha256(f"torch.{dtype.label}{tuple(shape)}".encode())
    for piece in pieces:
        digest.update(piece)
    return f"webgpu_{digest.hexdigest()[:32]}"
