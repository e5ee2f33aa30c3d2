"""Processes of the drivers, which are built where the shim is."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
import setup  # noqa: E402  the build's own tools


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
    """The program of `name`.cpp."""
    with build_directory() as folder:
        command = [setup.tool("cmake"), "--build", folder, "--target", name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return folder / name


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    text = Path(f"/proc/{pid}/status").read_text()
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", text)
    return int(kilobytes) << 10


class Driver:
    """A process that answers lines, in a folder of its own."""

    def __init__(self, program: Path, folder: Path, *flags: str, **env: str) -> None:
        import wgpu

        library = Path(wgpu.__file__).parent / "resources" / "libwgpu_native-release.so"
        self.folder = folder
        self._process = subprocess.Popen(
            [program, *flags],
            cwd=folder,
            env={**os.environ, "ET_WEBGPU_LIBRARY": str(library), **env},
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
