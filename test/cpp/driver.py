"""Processes of the drivers, and how values and failures cross to them.

`player_driver` is built where the shim is, `module_driver` as an app is built. What
came of a call is an `Outcome`, whoever made it: results by their bytes, failures by
code and text, so that they can be compared as they are.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
import setup  # noqa: E402  the build's own tools

# ExecuTorch's numbers of the types that cross a program's boundary.
TYPES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16),
    *(torch.float32, torch.float64, None, None, None, torch.bool),
    *(None, None, None, torch.bfloat16),
)


@contextlib.contextmanager
def build_directory() -> Iterator[Path]:
    """Where the shim was built; scripts/sanitize.sh has others."""
    given = os.environ.get("EXECUTORCH_WEBGPU_BUILD")
    if given:
        yield Path(given)
    else:
        with setup.build_directory(editable=True) as folder:
            yield folder


def build(name: str) -> Path:
    """A program of test/CMakeLists.txt."""
    with build_directory() as folder:
        run(setup.tool("cmake"), "--build", folder, "--target", name)
        return folder / name


def wgpu_library() -> Path:
    return setup.package_dir("wgpu") / "resources" / "libwgpu_native-release.so"


def dawn() -> dict[str, str]:
    """An environment in which a driver has Dawn instead of wgpu-native, on SwiftShader:
    Dawn takes no older llvmpipe."""
    library = Path(sys.prefix) / "dawn" / "libwebgpu_dawn.so"
    manifest = Path(sys.prefix) / "swiftshader" / "vk_swiftshader_icd.json"
    for path in (library, manifest):
        assert path.exists(), f"{path} must exist: scripts/setup.sh test"
    return {"ET_WEBGPU_LIBRARY": str(library), "VK_DRIVER_FILES": str(manifest)}


def build_app(source: Path, name: str, wgpu: str | Path = "") -> Path:
    """The program `name` of a folder with apps, built against this installation, once:
    after that only what has changed. With NONE, it finds a WebGPU library itself."""
    folder = ROOT / "build" / "apps" / source.relative_to(ROOT)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        setup.lock_file(lock.fileno())
        configure(
            source,
            folder,
            executorch_DIR=setup.package_dir("executorch") / "share" / "cmake",
            executorch_webgpu_DIR=ROOT / "executorch_webgpu" / "cmake",
            WGPU_LIBRARY=wgpu or wgpu_library(),
        )
        run(setup.tool("cmake"), "--build", folder, "--target", name)
    return folder / name


def configure(
    source: Path, folder: Path, env: dict[str, str] | None = None, **definitions: object
) -> None:
    """Has CMake write what builds the sources in `folder`."""
    given = {"CMAKE_MAKE_PROGRAM": setup.tool("ninja"), **definitions}
    flags = [f"-D{name}={value}" for name, value in given.items()]
    command = [setup.tool("cmake"), "-S", source, "-B", folder, "-G", "Ninja", *flags]
    run(*command, env=env)


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """What a command prints; what it says of a failure is shown."""
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def module_driver() -> Path:
    """Takes the library that ET_WEBGPU_LIBRARY names."""
    return build_app(Path(__file__).parent, "module_driver", wgpu="NONE")


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    text = Path(f"/proc/{pid}/status").read_text()
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", text)
    return int(kilobytes) << 10


class Driver:
    """A process that answers lines, in a folder of its own."""

    def __init__(self, program: Path, folder: Path, *flags: str, **env: str) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [program, *flags],
            cwd=folder,
            env={**os.environ, "ET_WEBGPU_LIBRARY": str(wgpu_library()), **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n")
        assert answer, f"the driver ended with {self._process.wait()} at {line!r}"
        return answer

    def resident(self) -> int:
        return resident(self._process.pid)

    def end(self, line: str) -> int:
        """Gives a command that ends the process: its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.wait(60)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0


@dataclass(frozen=True)
class Result:
    """A value that left a program: what it is, and its bytes in memory's order."""

    kind: str  # as module_driver.cpp writes it
    data: bytes = b""

    def value(self) -> Any:
        """The tensor or int."""
        if self.kind.startswith("i"):
            return int(self.kind[1:])
        number, *numbers = self.kind[1:].split(":")
        shape, order = (_numbers(text) for text in numbers)
        dtype = TYPES[int(number)]
        assert dtype is not None
        flat = torch.empty(0, dtype=dtype)
        if self.data:
            flat = torch.frombuffer(bytearray(self.data), dtype=dtype)
        inverse = [order.index(dim) for dim in range(len(order))]
        return flat.reshape([shape[dim] for dim in order]).permute(inverse)


@dataclass(frozen=True)
class Outcome:
    """What came of a call, or of loading: results, or a code and the backend's text."""

    results: tuple[Result, ...] = ()
    code: int = 0
    text: str = ""


def _numbers(text: str) -> list[int]:
    return [] if text == "-" else [int(part) for part in text.split("x")]


def _written(numbers: Sequence[int]) -> str:
    return "x".join(map(str, numbers)) or "-"


def described(value: Any) -> Result:
    """A tensor or an int, as the driver would write it."""
    if isinstance(value, int):
        return Result(f"i{value}")
    order = value.dim_order()
    kind = f"t{TYPES.index(value.dtype)}:{_written(value.shape)}:{_written(order)}"
    flat = value.detach().permute(order).contiguous().reshape(-1)
    return Result(kind, flat.view(torch.uint8).numpy().tobytes())


class App(Driver):
    """A process of module_driver.cpp, with a folder for what goes in and out."""

    def command(self, line: str) -> Outcome:
        """What a line came to."""
        word, _, rest = self.ask(line).partition(" ")
        if word == "error":
            code, _, text = rest.partition(" ")
            return Outcome(code=int(code), text=" ".join(text.split()))
        results = []
        for number, kind in enumerate(rest.split()):
            is_tensor = kind.startswith("t")
            path = self.folder / f"out{number}"
            results.append(Result(kind, path.read_bytes() if is_tensor else b""))
        return Outcome(tuple(results))

    def call(self, inputs: Sequence[Any], command: str = "call") -> Outcome:
        """What the method gives for tensors and ints."""
        words = []
        for number, value in enumerate(inputs):
            shown = described(value)
            if shown.kind.startswith("i"):
                words.append(shown.kind)
                continue
            name = f"in{number}"
            (self.folder / name).write_bytes(shown.data)
            words.append(f"{shown.kind}:{name}")
        return self.command(" ".join([command, "out", *words]))


class PlayerDriver(Driver):
    """A process of player_driver.cpp."""

    def load(self, content: bytes, options: str = "") -> str:
        (self.folder / "blob").write_bytes(content)
        return self.ask(f"load blob data {options}")

    def call(self, x: np.ndarray) -> tuple[np.ndarray, float]:
        """y and the total so far."""
        answer = self.ask(f"call out {self._input(x)}")
        shape = "x".join(map(str, x.shape))
        assert answer == f"ok {shape} - {x.shape[0]}", answer
        y = np.fromfile(self.folder / "out0", np.float32).reshape(x.shape)
        return y, float(np.fromfile(self.folder / "out1", np.float32)[0])

    def error(self, x: np.ndarray) -> str:
        return self.ask(f"call out {self._input(x)}")

    def race(self, x: np.ndarray, threads: int, rounds: int) -> str:
        return self.ask(f"race {threads} {rounds} out {self._input(x)}")

    def _input(self, x: np.ndarray) -> str:
        x.astype(np.float32).tofile(self.folder / "x")
        return "x".join(map(str, x.shape)) + ":x"
