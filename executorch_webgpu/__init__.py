"""ExecuTorch on WebGPU: importing this package registers `WebGPUBackend`.

The import is light: neither torch nor wgpu is loaded until it is needed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .export.for_transformers import register_with_transformers
    from .export.partitioner import WebGPUPartitioner
    from .export.recipes import WebGPURecipeType
    from .runtime.delegate import Stats

    __version__: str

__all__ = [
    "WebGPUPartitioner",
    "WebGPURecipeType",
    "__version__",
    "last_error",
    "register_with_transformers",
    "reset_state",
    "stats",
]

# ExecuTorch logs a failure once; add a handler of level DEBUG to see its traceback.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def last_error() -> str | None:
    """The last failure of the backend in any thread, with its full traceback.

    A call that ExecuTorch itself refuses, such as one with an input of another rank,
    does not reach the backend and leaves this unchanged.
    """
    from . import _shim

    return _shim.last_error()


def stats() -> Stats:
    """What the backend holds on the GPU and has done so far."""
    from .runtime import delegate

    return delegate.stats()


def reset_state() -> None:
    """Gives the mutable buffers of all loaded methods their initial content."""
    from .runtime import delegate

    delegate.reset_state()


def __getattr__(name: str) -> Any:
    if name == "WebGPUPartitioner":
        from .export.partitioner import WebGPUPartitioner

        return WebGPUPartitioner
    if name == "__version__":
        import importlib.metadata

        return importlib.metadata.version("executorch-webgpu")
    if name == "WebGPURecipeType":
        from .export.recipes import WebGPURecipeType

        return WebGPURecipeType
    if name == "register_with_transformers":
        from .export.for_transformers import register_with_transformers

        return register_with_transformers
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _register() -> None:
    from . import registration

    registration.register()


_register()
