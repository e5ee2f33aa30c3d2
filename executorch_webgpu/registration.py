"""Registers the backend with the ExecuTorch runtime of this process."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import sys
from pathlib import Path

from . import options

# The shim is built against the C++ interface of one minor version.
_OLDEST, _BELOW = (1, 5), (1, 6)


def register() -> None:
    """Registers `WebGPUBackend`; a second call changes nothing.

    Files made for ExecuTorch's `VulkanBackend` come here, too, if the option
    `vulkan_files` is on and no other library has registered that name.

    Raises ImportError if executorch is missing or of another version, and
    RuntimeError if another library has registered `WebGPUBackend`.
    """
    check_version(_installed_version())
    _load_runtime()
    from . import _shim

    _shim.register_backend()
    if options.takes_vulkan_files():
        _shim.register_vulkan_backend()


def check_version(version: str) -> None:
    if not _OLDEST <= _numbers(version) < _BELOW:
        raise ImportError(
            "executorch_webgpu: executorch must be >=1.5,<1.6, got"
            f" {version}; pip install 'executorch>=1.5,<1.6'"
        )


def _installed_version() -> str:
    try:
        return importlib.metadata.version("executorch")
    except importlib.metadata.PackageNotFoundError as error:
        raise ImportError(
            "executorch_webgpu: executorch must be installed;"
            " pip install 'executorch>=1.5,<1.6'"
        ) from error


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version, whatever follows them."""
    numbers = [part for part in version.split(".")[:2] if part.isdecimal()]
    return tuple(map(int, numbers))


def _load_runtime() -> None:
    """Loads libexecutorch from the installed package.

    The shim links to it by name only. ExecuTorch's own modules use the same loaded
    library, so there is a single registry of backends.
    """
    name = {"darwin": "libexecutorch.dylib", "win32": "executorch.dll"}.get(
        sys.platform, "libexecutorch.so"
    )
    spec = importlib.util.find_spec("executorch")
    places = list(spec.submodule_search_locations or []) if spec else []
    for place in places:
        library = Path(place, "lib", name)
        if library.exists():
            ctypes.CDLL(str(library))
            return
    raise ImportError(f"executorch_webgpu: executorch must ship {name}, got {places}")
