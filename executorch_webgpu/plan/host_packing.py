"""Host packings: constants laid out for their kernels, once, at load.

A packing takes the elements of a view of the constant, in the type that the program
stores, and returns the array to upload. Ops name one in `g.prepack`. An unpacking gives
the elements back, of a constant that the file holds as a packing laid it out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..errors import InvalidBlob

Packing = Callable[..., np.ndarray]
_PACKINGS: dict[str, Packing] = {}
_UNPACKINGS: dict[str, Packing] = {}


def packing(name: str) -> Callable[[Packing], Packing]:
    """Registers a packing under a name; a second registration raises."""

    def register(function: Packing) -> Packing:
        if name in _PACKINGS:
            raise ValueError(f"packing {name} is registered already")
        _PACKINGS[name] = function
        return function

    return register


def unpacking(name: str) -> Callable[[Packing], Packing]:
    """Registers what undoes the packing of that name: its function takes the packed
    array, the shape of the elements, and the packing's arguments."""

    def register(function: Packing) -> Packing:
        _UNPACKINGS[name] = function
        return function

    return register


def can_unpack(name: str) -> bool:
    """Whether a packing can be undone; so can none."""
    return not name or name in _UNPACKINGS


def pack(name: str, data: np.ndarray, args: tuple[int, ...]) -> np.ndarray:
    """`data` as the packing of that name lays it out; InvalidBlob if it cannot be."""
    try:
        return _PACKINGS[name](data, *args)
    except (ArithmeticError, LookupError, ValueError) as error:
        raise InvalidBlob(
            f"a constant of {list(data.shape)} must be one that {name} packs,"
            f" got {error}"
        ) from error


def unpack(
    name: str, data: np.ndarray, shape: tuple[int, ...], args: tuple[int, ...]
) -> np.ndarray:
    """The elements, in `shape`, of what a packing made; InvalidBlob if it did not."""
    try:
        made = _UNPACKINGS[name](data, shape, *args) if name else data
        return made.reshape(shape)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise InvalidBlob(
            f"data of {list(data.shape)} must be what {name or 'no packing'} makes of"
            f" {list(shape)}, got {error}"
        ) from error
