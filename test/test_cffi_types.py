"""wgpu-py's C types, parsed with few declarations, are those of cffi's own parser."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cffi
import pytest
import torch
import wgpu.backends.wgpu_native as native
from harness import lower
from wgpu.backends.wgpu_native import _ffi

from executorch_webgpu.runtime import cffi_types

# What a string in wgpu-py's code must look like to be a type.
_NAME = r"(?:WGPU[A-Z][a-z]\w*|void|char|u?int\w*_t)"
_TYPE = re.compile(rf'"({_NAME}\s*(?:\*\s*|\[\]|\(.*\))?)"')


def texts() -> list[str]:
    """The texts of types that wgpu-py uses, and some of its kinds that it does not."""
    folder = Path(native.__file__).parent
    code = "\n".join(path.read_text() for path in sorted(folder.glob("*.py")))
    found = set(_TYPE.findall(code)) - {"void"}
    extra = {
        "const WGPUBufferDescriptor *",
        "struct WGPUBufferDescriptor",
        "WGPUBufferDescriptor[3]",
        "WGPUBuffer const * *",
        "unsigned long long *",
        "WGPUProc",
        "char const *",
        "void(*)(WGPUDevice const *, int, ...)",
    }
    return sorted(found | extra)


@pytest.fixture
def ffi() -> Any:
    made = cffi.FFI()
    made.cdef(_ffi.get_wgpu_header())
    return made


def test_every_type_is_the_same_one(ffi: Any) -> None:
    kinds = texts()
    assert len(kinds) > 60
    assert cffi_types.quicken(ffi)
    quick = {text: ffi._typeof(text, True) for text in kinds}
    ffi._parsed_types.clear()
    del ffi._parser._parse
    for text, found in quick.items():
        assert ffi._typeof(text, True) is found, text


def test_few_names_are_parsed(ffi: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    parse = cffi.cparser.Parser._parse

    def watch(self: Any, source: str) -> Any:
        seen.append(len(self._declarations))
        return parse(self, source)

    monkeypatch.setattr(cffi.cparser.Parser, "_parse", watch)
    assert cffi_types.quicken(ffi)
    assert cffi_types.quicken(ffi)
    ffi.typeof("WGPUBufferDescriptor *")
    ffi.typeof("void(*)(WGPUDevice, WGPUBuffer *, void *)")
    assert seen == [1, 2]
    # What declares something is parsed with everything.
    ffi.cdef("typedef struct { WGPUBuffer b; } later;")
    assert seen[-1] > 400
    assert ffi.sizeof("later") == ffi.sizeof("WGPUBuffer")


def test_a_wrong_type_is_refused_as_before(ffi: Any) -> None:
    assert cffi_types.quicken(ffi)
    with pytest.raises(cffi.CDefError, match="unknown identifier 'WGPUNothing'"):
        ffi.typeof("WGPUNothing")
    with pytest.raises(cffi.CDefError, match="cannot parse"):
        ffi.typeof("WGPUBuffer [")


class Other:
    """A parser of some other cffi."""

    def __init__(self, needed: int) -> None:
        self._declarations: dict[str, Any] = {}

    def _parse(self, source: str) -> None:
        raise AssertionError("never called")


@pytest.mark.parametrize(
    "ffi",
    [
        SimpleNamespace(),
        SimpleNamespace(_parser=SimpleNamespace()),
        SimpleNamespace(_parser=SimpleNamespace(_declarations={})),
        SimpleNamespace(_parser=SimpleNamespace(_declarations=[], _parse=print)),
        SimpleNamespace(_parser=Other(1)),
    ],
)
def test_what_is_not_known_is_left_alone(ffi: Any) -> None:
    parser = getattr(ffi, "_parser", None)
    before = dict(vars(parser)) if parser else {}
    assert not cffi_types.quicken(ffi)
    assert (dict(vars(parser)) if parser else {}) == before


def test_a_program_loads_without_it(tmp_path: Path) -> None:
    """In a process whose cffi has no parser where ours looks for it."""
    model = torch.nn.Linear(3, 2)
    path = tmp_path / "linear.pte"
    path.write_bytes(lower(model, (torch.ones(1, 3),)).buffer)
    code = """
import sys, torch
from executorch.runtime import Runtime
from wgpu.backends.wgpu_native import _ffi
from executorch_webgpu.runtime import cffi_types
quicken = cffi_types.quicken
class Hidden:
    pass
def refused(ffi):
    assert not quicken(Hidden())
    return False
cffi_types.quicken = refused
method = Runtime.get().load_program(sys.argv[1]).load_method("forward")
assert method.execute([torch.ones(1, 3)])[0].shape == (1, 2)
assert "_parse" not in vars(_ffi.ffi._parser)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
