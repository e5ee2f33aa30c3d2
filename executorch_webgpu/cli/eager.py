"""The model that a program was exported from, by a function of the user's.

Enters: `module:function`, where the function gives (torch.nn.Module, example inputs) or
the dynamic shapes with them. Leaves: an Eager, whose inputs and outputs are flat, as
those of the program.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput

if TYPE_CHECKING:
    import torch


class Eager:
    """A model with its example inputs."""

    def __init__(self, name: str, given: Any) -> None:
        import torch
        from torch.utils import _pytree as pytree

        wanted = "(torch.nn.Module, tuple of inputs[, dynamic shapes])"
        parts = tuple(given) if isinstance(given, tuple) else (given,)
        if len(parts) not in (2, 3) or not (
            isinstance(parts[0], torch.nn.Module)
            and isinstance(parts[1], (tuple, list))
        ):
            kinds = ", ".join(type(part).__name__ for part in parts)
            raise InvalidInput(f"--eager: {name} must give {wanted}, got ({kinds})")
        # An exported module is in the mode that it was exported in, and cannot change.
        self.module: torch.nn.Module = parts[0]
        if not isinstance(self.module, torch.fx.GraphModule):
            self.module.eval()
        self.dynamic_shapes: Any = parts[2] if len(parts) == 3 else None
        self.flat, self._spec = pytree.tree_flatten(tuple(parts[1]))

    def arguments(self, flat: Sequence[Any]) -> tuple[Any, ...]:
        """Flat inputs in the form that the module takes them in."""
        from torch.utils import _pytree as pytree

        if len(flat) != len(self.flat):
            raise InvalidInput(
                f"--eager: the model must take the program's {len(flat)} inputs,"
                f" got {len(self.flat)} example inputs"
            )
        return tuple(pytree.tree_unflatten(list(flat), self._spec))

    def call(self, flat: Sequence[Any]) -> list[Any]:
        import torch
        from torch.utils import _pytree as pytree

        with torch.no_grad():
            return list(pytree.tree_leaves(self.module(*self.arguments(flat))))

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Gives the model's states their content back, which its calls may change."""
        import torch

        before = {name: b.clone() for name, b in self.module.named_buffers()}
        try:
            yield
        finally:
            with torch.no_grad():
                for name, buffer in self.module.named_buffers():
                    buffer.copy_(before[name])


def load(name: str) -> Eager:
    """Imports as `python -m` does: from the current folder, too."""
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise InvalidInput(f"--eager: must be module:function, got {name}")
    add_current_folder()
    try:
        found = getattr(importlib.import_module(module_name), function_name)
        given = found()
    # It is the user's code, which may fail in any way; --verbose shows where.
    except Exception as error:
        said = str(error).strip().splitlines()
        text = said[0] if said else ""
        raise InvalidInput(
            f"--eager: {name} must be a function that can be imported and called,"
            f" got {type(error).__name__}: {text}"
        ) from error
    return Eager(name, given)


def add_current_folder() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
