"""What can be set at run time, and the only module that reads the environment.

An option is the last of these that is given: its default, what the program was exported
with, the environment variable ET_WEBGPU_<NAME>, ExecuTorch's set_option(), the options
that a method is loaded with.
(ET_WEBGPU_AUTOLOAD is read elsewhere: its hook must not import this package.)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from .errors import InvalidBlob, InvalidInput

Value = bool | int | str

_PREFIX = "ET_WEBGPU_"


@dataclass(frozen=True)
class Options:
    """Options of a delegate, fixed when its method is loaded."""

    # Who plays plans: "native" (C++) or "wgpu" (Python, as reference).
    executor: str = "native"
    # Part of the adapter's name; "" takes the best one.
    adapter: str = ""
    # How many plans, one per set of live shapes, a delegate keeps.
    plan_cache: int = 64
    # Whether other Python threads run during execute. Off, because ExecuTorch's Python
    # bindings hold the GIL for the whole of execute, and nothing else keeps two threads
    # out of one Method, whose state they would corrupt. With it, each thread must have
    # a Method of its own.
    release_gil: bool = False
    # Whether constants must be what their keys, hashes of their content, say. To be
    # switched off where files are verified before they are loaded: constants are then
    # shared by key with other methods that are loaded like that.
    verify_weights: bool = True
    # Whether plans may compute with f16, and use subgroups, where the device can.
    f16: bool = True
    subgroups: bool = True
    # Whether an adapter that computes on the host's processor gets kernels for that;
    # else it gets those for GPUs, which are slow there.
    cpu_kernels: bool = True
    # When kernels are compiled: "load" has all before load returns, "background" those
    # for the largest sizes, and the others by a thread, "call" leaves them to the calls
    # that need them. "auto" gives all to the driver at load where plans come from the
    # file, so that all are known, and is "call" where sizes are planned as they come.
    compile: str = "auto"
    # Whether kernels have all run-time checks of wgpu, those that loops end included.
    check_kernels: bool = False
    # Whether GPUs may sum products of float16 in float16, in short runs that are summed
    # in float32: faster, less accurate, and infinite where a run exceeds 65504.
    f16_accumulate: bool = False
    # Where plans come from: "graph" plans what is in the file here, for this device and
    # with kernels of this package; "file" takes those that a portable program carries;
    # "auto" takes them where they are trusted, and made for a device like this one.
    plans: str = "auto"
    # Whether the kernels that a file carries are the application's own: they are then
    # compiled as those of this package are, without wgpu's checks of loops.
    trust_plans: bool = False
    # Whether files made for ExecuTorch's Vulkan backend are loaded, if no other library
    # in the process loads them. The environment's value also decides whether that
    # backend's name is taken at all.
    vulkan_files: bool = True
    # Seconds that a call waits for the GPU.
    timeout: int = 600
    # Whether kernels are chosen by timing their forms, once per device and shape.
    autotune: bool = False
    # Where the times are kept; "" is a file in the user's cache directory.
    tuning_file: str = ""

    def __post_init__(self) -> None:
        if self.executor not in ("native", "wgpu"):
            raise InvalidInput(
                f"executor: must be 'native' or 'wgpu', got {self.executor!r}"
            )
        if self.plans not in ("auto", "graph", "file"):
            raise InvalidInput(
                f"plans: must be 'auto', 'graph' or 'file', got {self.plans!r}"
            )
        if self.compile not in ("auto", "load", "background", "call"):
            raise InvalidInput(
                "compile: must be 'auto', 'load', 'background' or 'call',"
                f" got {self.compile!r}"
            )
        if self.autotune and self.compile not in ("auto", "call"):
            raise InvalidInput(
                "compile: must be 'auto' or 'call' with autotune, which chooses kernels"
                f" at each size, got {self.compile!r}"
            )
        if self.plan_cache < 1:
            raise InvalidInput(f"plan_cache: must be at least 1, got {self.plan_cache}")
        if self.timeout < 1:
            raise InvalidInput(f"timeout: must be at least 1, got {self.timeout}")

    @property
    def tuning_path(self) -> Path:
        return Path(self.tuning_file or _user_cache() / "tuning.json")


NAMES = tuple(field.name for field in fields(Options))

_overrides: dict[str, Value] = {}


def current(
    given: Mapping[str, Value] | None = None, specs: Mapping[str, bytes] | None = None
) -> Options:
    """The options in force; those in `given` win, those that a program has in its
    compile specs lose."""
    options = with_values(Options(), {**_exported(specs or {}), **_environment()})
    return with_values(options, {**_overrides, **(given or {})})


def override(values: Mapping[str, Value]) -> None:
    """Sets options for every method loaded from now on."""
    current(values)
    _overrides.update(values)


def get(name: str) -> Value:
    if name not in NAMES:
        raise _unknown(name)
    value: Value = getattr(current(), name)
    return value


def takes_vulkan_files() -> bool:
    """Whether the environment lets this package register for Vulkan's files; reads
    nothing else, because an import must not fail for other options."""
    text = os.environ.get(f"{_PREFIX}VULKAN_FILES")
    return text is None or bool(_parse("vulkan_files", text, bool))


def with_values(options: Options, values: Mapping[str, Value]) -> Options:
    for name, value in values.items():
        if name not in NAMES:
            raise _unknown(name)
        kind = type(getattr(options, name))
        if type(value) is not kind:
            raise InvalidInput(
                f"{name}: must be of type {kind.__name__}, got {value!r}"
            )
    return replace(options, **values)  # type: ignore[arg-type]


def _exported(specs: Mapping[str, bytes]) -> dict[str, Value]:
    """Of a partitioner's options, those that are options here, too."""
    value = specs.get("f16_accumulate", b"0")
    if value not in (b"0", b"1"):
        raise InvalidBlob(f"f16_accumulate: must be 0 or 1, got {value[:20]!r}")
    return {"f16_accumulate": value == b"1"}


def _environment() -> dict[str, Value]:
    values: dict[str, Value] = {}
    for field in fields(Options):
        text = os.environ.get(_PREFIX + field.name.upper())
        if text is not None:
            values[field.name] = _parse(field.name, text, type(field.default))
    return values


def _user_cache() -> Path:
    """The platform's directory for files that can be made again."""
    home = Path.home()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "executorch_webgpu"


def _parse(name: str, text: str, kind: type) -> Value:
    if kind is str:
        return text
    if kind is bool and text in ("0", "1"):
        return text == "1"
    if kind is int and text.isdecimal():
        return int(text)
    wanted = "0 or 1" if kind is bool else "a number"
    raise InvalidInput(f"{_PREFIX}{name.upper()}: must be {wanted}, got {text!r}")


def _unknown(name: str) -> InvalidInput:
    return InvalidInput(f"option must be one of {', '.join(NAMES)}, got {name!r}")
