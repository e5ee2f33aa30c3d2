"""Three ways to play one file: each loads it, calls it, and tells what came out.

`Python` plans the graph, or takes the plans of the file; `Cpp` is a process without
Python (driver.cpp). Whatever happens in a call is an `Outcome`, which are compared as
they are: results by their bytes, failures by code and text.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.runtime import Method, Runtime

from executorch_webgpu import ir, options
from executorch_webgpu.plan.caps import Caps
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.portable.profiles import profiles_for
from executorch_webgpu.runtime import delegate

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
import setup  # noqa: E402  the build's own tools

Inputs = Sequence[Any]  # tensors and ints
# Options of the backend that are flags, by name.
Flags = Mapping[str, bool]

# ExecuTorch's numbers of the types that cross a program's boundary.
TYPES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16),
    *(torch.float32, torch.float64, None, None, None, torch.bool),
    *(None, None, None, torch.bfloat16),
)


@dataclass(frozen=True)
class Result:
    """A value that left a program: what it is, and its bytes in memory's order."""

    kind: str  # as the driver writes it
    data: bytes = b""

    def tensor(self) -> torch.Tensor | int:
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


def one_line(text: str) -> str:
    """As the backend's line in the log, without its name and the code's."""
    line = " ".join(text.split())
    line = line.removeprefix("WebGPUBackend: ")
    return re.sub(r" \(Error::\w+\)$", "", line)


class Python:
    """In this process: with plans of "graph" or of "file"."""

    def __init__(self, plans: str, adapter: str = "") -> None:
        self.options = {"plans": plans, "adapter": adapter}
        self._lines = _Lines()
        self._program: Any = None
        self._method: Method | None = None

    def load(
        self, file: Path, method: str, weights: Path | None, flags: Flags
    ) -> Outcome:
        self.unload()
        data = {"data_path": weights} if weights else {}
        given = {**self.options, **flags}
        with _options(given), _planned_as_exported(), self._lines.kept():
            try:
                self._program = Runtime.get().load_program(file, **data)
                self._method = self._program.load_method(method)
            except RuntimeError as error:
                return self._failed(error)
        return Outcome()

    def call(self, inputs: Inputs) -> Outcome:
        assert self._method is not None
        with _planned_as_exported(), self._lines.kept():
            try:
                results = self._method.execute(list(inputs))
            except RuntimeError as error:
                return self._failed(error)
        return Outcome(tuple(map(described, results)))

    def reset(self) -> None:
        delegate.reset_state()

    def unload(self) -> None:
        self._method = self._program = None

    def _failed(self, error: RuntimeError) -> Outcome:
        found = re.search(r"error:? 0x:?([0-9a-f]+)", str(error))
        assert found, str(error)
        return Outcome(code=int(found[1], 16), text=self._lines.last)


class _Lines(logging.Handler):
    """Keeps what the backend tells of a failure."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage().partition("\nTraceback (most recent call")[0]
        self.last = one_line(text)

    @contextmanager
    def kept(self) -> Iterator[None]:
        logger = logging.getLogger("executorch_webgpu")
        level, self.last = logger.level, ""
        logger.addHandler(self)
        logger.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            logger.setLevel(level)
            logger.removeHandler(self)


@contextmanager
def _options(values: dict[str, Any]) -> Iterator[None]:
    """What is loaded inside has these options."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "_overrides", {**options._overrides, **values})
        yield


@contextmanager
def _planned_as_exported() -> Iterator[None]:
    """A graph is planned for the kind of device that the file's plans are for: this one
    may be a CPU, whose kernels sum in another order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delegate, "Planner", _planner)
        yield


def _planner(graph: ir.Graph, caps: Caps) -> Planner:
    fitting = (
        each
        for each in profiles_for(graph, caps.f16_accumulate)
        if each.f16 <= caps.f16 and each.subgroups <= caps.subgroups
    )
    return Planner(graph, next(fitting))


class Cpp:
    """A process of driver.cpp, with a folder for what goes in and out."""

    def __init__(self, driver: Path, folder: Path, **env: str) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [driver],
            cwd=folder,
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def load(
        self, file: Path, method: str, weights: Path | None, flags: Flags
    ) -> Outcome:
        for name, value in flags.items():
            assert self.ask(f"set {name} {int(value)}") == "ok"
        outcome = self._outcome(self.ask(f"load {file} {weights or ''}"))
        return outcome if outcome.code else self._outcome(self.ask(f"method {method}"))

    def call(self, inputs: Inputs) -> Outcome:
        words = []
        for number, value in enumerate(inputs):
            shown = described(value)
            if shown.kind.startswith("i"):
                words.append(shown.kind)
                continue
            name = f"in{number}"
            (self._folder / name).write_bytes(shown.data)
            words.append(f"{shown.kind}:{name}")
        return self._outcome(self.ask(" ".join(["call out", *words])))

    def reset(self) -> None:
        assert self.ask("set reset_state 1") == "ok"

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n")
        assert answer, f"the driver ended with {self._process.wait()} at {line!r}"
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0

    def _outcome(self, answer: str) -> Outcome:
        word, _, rest = answer.partition(" ")
        if word == "error":
            code, _, text = rest.partition(" ")
            return Outcome(code=int(code), text=one_line(text))
        results = []
        for number, kind in enumerate(rest.split()):
            is_tensor = kind.startswith("t")
            path = self._folder / f"out{number}"
            results.append(Result(kind, path.read_bytes() if is_tensor else b""))
        return Outcome(tuple(results))


def build_driver() -> Path:
    """driver.cpp, built as any app is, once: after that only what has changed."""
    folder = ROOT / "build" / "portable-driver"
    folder.mkdir(parents=True, exist_ok=True)
    cmake = setup.tool("cmake")
    wgpu = setup.package_dir("wgpu") / "resources" / "libwgpu_native-release.so"
    definitions = {
        "CMAKE_MAKE_PROGRAM": setup.tool("ninja"),
        "executorch_DIR": setup.package_dir("executorch") / "share" / "cmake",
        "executorch_webgpu_DIR": ROOT / "executorch_webgpu" / "cmake",
        "WGPU_LIBRARY": wgpu,
    }
    with (folder / "lock").open("w") as lock:
        setup.lock_file(lock.fileno())
        for command in (
            [cmake, "-S", Path(__file__).parent, "-B", folder, "-G", "Ninja"]
            + [f"-D{name}={value}" for name, value in definitions.items()],
            [cmake, "--build", folder],
        ):
            made = subprocess.run(command, capture_output=True, text=True)
            assert made.returncode == 0, made.stdout + made.stderr
    return folder / "driver"
