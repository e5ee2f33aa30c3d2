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
from enum import IntEnum
from typing import Any

from ..errors import InvalidBlob
from .accuracy import Accuracy

OpFunction = Callable[..., None]


class View(IntEnum):
    """Which view of its operand a result is; from SOME on, no kernel runs for it.

    Ordered: each kind has the properties of those before it.
    """

    NONE = 0  # computed by a kernel
    SOME = 1  # a view of the same store, of any of its elements
    EACH = 2  # each element once
    RESHAPED = 3  # each element once, in row-major order
    SAME = 4  # the operand itself, in its shape


class Cheap(IntEnum):
    """Whether an elementwise op is so few instructions that it may be recomputed."""

    NEVER = 0
    BY_NUMBER = 1  # if its second operand is a number: such a division is a product
    ALWAYS = 2


@dataclass(frozen=True, kw_only=True)
class Op:
    """A registered op function and what passes may assume of it."""

    name: str
    function: OpFunction
    # How near its results are to torch's.
    accuracy: Accuracy
    # Its last kernel writes each element of the output once, by its row-major index,
    # so that it can have an epilogue and a place in a concatenation's buffer.
    fusible: bool = False
    # Its last kernel makes two values for each element, which an epilogue combines.
    gated: bool = False
    # A better kernel exists than what the op would decompose into.
    keep: bool = False
    # Positions of integer arguments that the op reads on the GPU, so that their
    # value may come from data (a SymInt that is no shape).
    data_ints: tuple[int, ...] = ()
    # Positions of tensor arguments that are written in place.
    mutates: tuple[int, ...] = ()
    # Which view of its operand its result is.
    view: View = View.NONE
    # How often its kernels read each element of the first argument (of each tensor, if
    # that is a list) if they read it by get_x alone, so that its producer can be
    # inlined; 0: it must be in a buffer.
    lazy: int = 0
    # Its strides are those of the first argument's storage in eager torch.
    of_storage: bool = False
    # ExecuTorch's lowering refuses it by its name, so programs call a twin of it.
    twin: bool = False
    # It concatenates the tensors of its first argument along the dimension of its
    # second.
    concat: bool = False
    # Its reader may recompute it at every read instead of reading a buffer.
    cheap: Cheap = Cheap.NEVER
    # It converts its operand to another type, and does nothing else.
    cast: bool = False


_OPS: dict[str, Op] = {}


def register(op: Op) -> None:
    """Makes an op known by its name; a second registration raises."""
    if op.name in _OPS:
        raise ValueError(f"{op.name} is registered already")
    _OPS[op.name] = op


def op(
    *names: str,
    accuracy: Accuracy,
    fusible: bool = False,
    gated: bool = False,
    keep: bool = False,
    data_ints: tuple[int, ...] = (),
    mutates: tuple[int, ...] = (),
    view: View = View.NONE,
    lazy: int = 0,
    of_storage: bool = False,
    twin: bool = False,
    concat: bool = False,
) -> Callable[[OpFunction], OpFunction]:
    """Registers an op function under its names, with what `Op` says of these."""

    def decorate(function: OpFunction) -> OpFunction:
        for name in names:
            made = Op(
                name=name,
                function=function,
                accuracy=accuracy,
                fusible=fusible,
                gated=gated,
                keep=keep,
                data_ints=data_ints,
                mutates=mutates,
                view=view,
                lazy=lazy,
                of_storage=of_storage,
                twin=twin,
                concat=concat,
            )
            register(made)
        return function

    return decorate


def find(name: str) -> Op | None:
    """The op of that name, or None."""
    _load()
    return _OPS.get(name)


def known(name: str) -> Op:
    """The op of that name; raises InvalidBlob if there is none."""
    found = find(name)
    if found is None:
        raise InvalidBlob(
            f"op must be known, got {name}; if another version of"
            " executorch_webgpu exported the program, export it again"
        )
    return found


def view_of(name: str) -> View:
    """Which view of its operand the result of an op is; NONE of an unknown op."""
    found = find(name)
    return View.NONE if found is None else found.view


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
