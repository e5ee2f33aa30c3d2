"""The ops: a name from the exported graph to the function that plans it.

An op function has the recorder first, then the op's arguments in ATen order, and
its outputs as `out`. It runs at export on the upper bounds, to find out whether
the op is supported, and again at load and for every new shape, to plan it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

OpFunction = Callable[..., None]


@dataclass(frozen=True)
class Op:
    """A registered op function and what passes may assume of it."""

    name: str
    function: OpFunction
    # Its last kernel writes each element of the output once, by its row-major index,
    # so pointwise steps can be applied as it is stored, at any place.
    fusible: bool
    # A better kernel exists than what the op would decompose into.
    keep: bool
    # Positions of integer arguments that the op reads on the GPU, so that their
    # value may come from data (a SymInt that is no shape).
    data_ints: tuple[int, ...]
    # Positions of tensor arguments that are written in place.
    mutates: tuple[int, ...]
    # Its result is another view of its operand's elements; no kernel runs for it.
    view: bool
    # It has each element of the operand, once.
    whole: bool
    # How often its kernels read each element of the first argument (a list's too)
    # if they read it by get_x alone, so that it can be computed there; 0: it must
    # be in a buffer.
    lazy: int
    # Its strides are those of the first argument's storage in eager torch.
    of_storage: bool


_OPS: dict[str, Op] = {}


def op(
    *names: str,
    fusible: bool = False,
    keep: bool = False,
    data_ints: tuple[int, ...] = (),
    mutates: tuple[int, ...] = (),
    view: bool = False,
    whole: bool = False,
    lazy: int = 0,
    of_storage: bool = False,
) -> Callable[[OpFunction], OpFunction]:
    """Registers an op function under its names; a second registration raises."""

    def register(function: OpFunction) -> OpFunction:
        for name in names:
            if name in _OPS:
                raise ValueError(f"{name} is registered already")
            _OPS[name] = Op(
                name,
                function,
                fusible,
                keep,
                data_ints,
                mutates,
                view,
                whole,
                lazy,
                of_storage,
            )
        return function

    return register


def find(name: str) -> Op | None:
    """The op of that name, or None."""
    _load()
    return _OPS.get(name)


def all_ops() -> dict[str, Op]:
    _load()
    return dict(_OPS)


def _load() -> None:
    """Imports every module of `ops/` once: a new file is found by being there."""
    if _STATE["loaded"]:
        return
    package = importlib.import_module("executorch_webgpu.ops")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    _STATE["loaded"] = True


_STATE: dict[str, Any] = {"loaded": False}
