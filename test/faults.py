"""Faults on demand: one chosen call fails, or finds its device lost.

The calls are those that runtime/ makes of wgpu-py and of the shim (`PythonCalls`), or
those that the native replay makes of wgpu-native (`ReplayCalls`, by faults.c).
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Protocol

import pytest
import wgpu
from wgpu.backends.wgpu_native import _api

from executorch_webgpu import _shim
from executorch_webgpu.plan import constant_data
from executorch_webgpu.runtime import delegate, device, shader_modules


class Calls(Protocol):
    def choose(self, number: int, loses: bool = False) -> None:
        """Counts calls from 0 again; call `number`, if it is made, meets the fault."""

    def was_met(self) -> bool:
        """Whether the chosen call has been made."""


def _invalid() -> Exception:
    return wgpu.GPUValidationError("injected")


def _no_memory() -> Exception:
    return wgpu.GPUOutOfMemoryError("injected")


# What compiles a kernel, once for a device: of wgpu-py, and of runtime/.
_COMPILING = (
    "create_bind_group_layout",
    "create_pipeline_layout",
    "create_compute_pipeline",
)
_MODULE = "create_shader_module"
COMPILING = (*_COMPILING, _MODULE)

# What runtime/ calls, and what is raised where it fails; None is the result instead.
_FAILURES: list[tuple[Any, str, Callable[[], Exception | None]]] = [
    (_api.GPUDevice, "create_buffer", _no_memory),
    *((_api.GPUDevice, name, _invalid) for name in _COMPILING),
    (shader_modules, _MODULE, _invalid),
    (_api.GPUDevice, "create_bind_group", _invalid),
    (_api.GPUDevice, "create_command_encoder", _no_memory),
    (_api.GPUCommandEncoder, "finish", _invalid),
    (_api.GPUQueue, "write_buffer", _invalid),
    (_api.GPUQueue, "submit", _no_memory),
    (_api.GPUBuffer, "map_sync", lambda: RuntimeError("injected")),
    (_api.GPUBuffer, "read_mapped", _invalid),
    (constant_data, "to_storage", lambda: MemoryError("injected")),
    (_shim.NamedData, "get", lambda: None),
]


class PythonCalls:
    def __init__(
        self, patch: pytest.MonkeyPatch, _: Path, kinds: Collection[str] = ()
    ) -> None:
        """Counts calls of all kinds, or of these."""
        self._made = 0
        self._chosen = -1
        self._loses = False
        for owner, name, failure in _FAILURES:
            if name in kinds or not kinds:
                real = getattr(owner, name)
                patch.setattr(owner, name, self._wrapped(name, real, failure))

    def choose(self, number: int, loses: bool = False) -> None:
        self._made, self._chosen, self._loses = 0, number, loses

    def was_met(self) -> bool:
        return 0 <= self._chosen < self._made

    def _wrapped(
        self, name: str, real: Any, failure: Callable[[], Exception | None]
    ) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            is_chosen = self._made == self._chosen
            self._made += 1
            if is_chosen and not self._loses:
                raised = failure()
                if raised is None:
                    return None
                raise raised
            # wgpu-native aborts the process if a submit fails: only after it.
            if is_chosen and name != "submit":
                _lose()
            result = real(*args, **kwargs)
            if is_chosen and name == "submit":
                _lose()
            return result

        return call


class ReplayCalls:
    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        real = Path(device.native_library())
        built = folder / "libfaults.so"
        source = Path(__file__).with_suffix(".c")
        command = ["cc", "-shared", "-fPIC", f"-I{real.parent}", "-o", built, source]
        subprocess.run([*command, real], check=True)
        self._library = ctypes.CDLL(str(built))
        patch.setattr(device, "native_library", lambda: str(built))
        delegate._is_native_possible.cache_clear()

    def choose(self, number: int, loses: bool = False) -> None:
        handle, _ = device.get_device().handles
        ctypes.c_void_p.in_dll(self._library, "device").value = handle
        for name, value in (("calls", 0), ("chosen", number), ("loses", loses)):
            ctypes.c_int.in_dll(self._library, name).value = value

    def was_met(self) -> bool:
        calls, chosen = (
            ctypes.c_int.in_dll(self._library, name).value
            for name in ("calls", "chosen")
        )
        return 0 <= chosen < calls


def _lose() -> None:
    # Not `destroy()` of wgpu-py, which also ends what polls.
    _api.libf.wgpuDeviceDestroy(device.get_device().raw._internal)
