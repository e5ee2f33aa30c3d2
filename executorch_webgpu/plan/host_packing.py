"""Host packings: constants laid out for their kernels, once, at load.

A packing takes the elements of a view of the constant, in the type that the program
stores, and returns the array to upload. Ops name one in `g.prepack`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..errors import InvalidBlob

Packing = Callable[..., np.ndarray]
_PACKINGS: dict[str, Packing] = {}


def packing(name: str) -> Callable[[Packing], Packing]:
    """Registers a packing under a name; a second registration raises."""

    def register(function: Packing) -> Packing:
        if name in _PACKINGS:
            raise ValueError(f"packing {name} is registered already")
        _PACKINGS[name] = function
        return function

    return register


def pack(name: str, data: np.ndarray, args: tuple[int, ...]) -> np.ndarray:
    """`data` as the packing of that name lays it out; InvalidBlob if it cannot be."""
    try:
        return _PACKINGS[name](data, *args)
    except (ArithmeticError, LookupError, ValueError) as error:
        raise InvalidBlob(
            f"a constant of {list(data.shape)} must be one that {name} packs,"
            f" got {error}"
        ) from error
