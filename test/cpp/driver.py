"""Processes of the drivers, which are built where the shim is."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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
        """Bytes of memory that the process holds."""
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", text)
        return int(kilobytes) << 10

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0
