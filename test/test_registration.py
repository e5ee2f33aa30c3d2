"""How the backend becomes known to the runtime, each time in a new process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from executorch_webgpu import _shim, registration
from executorch_webgpu.export.backend import WebGPUBackend

ID = _shim.BACKEND_ID
NAMES = """
from executorch.runtime import Runtime
names = Runtime.get().backend_registry.registered_backend_names
"""


def run(code: str, **env: str) -> str:
    """The standard output of a new interpreter that runs `code`."""
    done = subprocess.run(
        [sys.executable, "-W", "always::RuntimeWarning", "-c", textwrap.dedent(code)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + "".join(
        line for line in done.stderr.splitlines(True) if "RuntimeWarning" in line
    )


def test_export_and_runtime_have_one_id() -> None:
    assert WebGPUBackend.__name__ == ID


def test_import_registers_and_is_light() -> None:
    out = run(
        """
        import sys
        import executorch_webgpu
        from executorch_webgpu import _shim
        print(_shim.is_registered())
        print([name for name in ("torch", "wgpu", "numpy") if name in sys.modules])
        executorch_webgpu._register()
        print(_shim.is_registered())
        """
    )
    assert out.split() == ["True", "[]", "True"]


@pytest.mark.parametrize(
    "module",
    [
        "executorch.runtime",
        # The one above imports it.
        pytest.param(
            "executorch.extension.pybindings.portable_lib", marks=pytest.mark.long
        ),
        "executorch.extension.llm.runner",
    ],
)
def test_using_the_runtime_registers(module: str) -> None:
    out = run(
        f"""
        import {module}
        from executorch.runtime import Runtime
        registry = Runtime.get().backend_registry
        print({ID!r} in registry.registered_backend_names)
        """
    )
    assert out.strip() == "True"


def test_autoload_can_be_switched_off() -> None:
    code = f"{NAMES}\nimport sys\nprint({ID!r} in names)"
    code += "\nprint('executorch_webgpu' in sys.modules)"
    assert run(code, ET_WEBGPU_AUTOLOAD="0").split() == ["False", "False"]


def test_autoload_loads_nothing_at_start() -> None:
    out = run(
        """
        import sys
        print("_executorch_webgpu_autoload" in sys.modules)
        print("executorch_webgpu" in sys.modules, "executorch" in sys.modules)
        """
    )
    assert out.split() == ["True", "False", "False"]


def test_autoload_cannot_break_the_runtime() -> None:
    out = run(
        f"""
        import sys
        sys.modules["executorch_webgpu._shim"] = None
        {NAMES.strip().splitlines()[0]}
        names = Runtime.get().backend_registry.registered_backend_names
        print({ID!r} in names, "XnnpackBackend" in names)
        """
    )
    assert "False True" in out
    assert "RuntimeWarning: executorch_webgpu: " in out
    assert "is not registered" in out


def test_id_of_another_library_is_a_clear_error() -> None:
    out = run(
        f"""
        import ctypes, glob, importlib.util
        place = importlib.util.find_spec("executorch").submodule_search_locations[0]
        (path,) = glob.glob(place + "/lib/libexecutorch.*")
        library = ctypes.CDLL(path)

        class Backend(ctypes.Structure):
            _fields_ = [("name", ctypes.c_char_p), ("backend", ctypes.c_void_p)]

        other = Backend(b{ID!r}, id(library))
        name = "_ZN10executorch7runtime16register_backendERKNS0_7BackendE"
        assert library[name](ctypes.byref(other)) == 0
        try:
            import executorch_webgpu
        except RuntimeError as error:
            print(error)
        """
    )
    assert f"backend id {ID} must be free" in out


@pytest.mark.parametrize("version", ["1.5.0", "1.5.1+cpu", "1.5.2a0"])
def test_known_versions_are_accepted(version: str) -> None:
    registration.check_version(version)


@pytest.mark.parametrize("version", ["1.4.9", "1.6.0", "1.6.0a0", "2.0", "unknown"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(ImportError, match=rf"must be >=1\.5,<1\.6, got {version}"):
        registration.check_version(version)
