"""Runs the apps of examples/cpp, and sees that there is no Python in them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import driver

EXAMPLES = driver.ROOT / "examples" / "cpp"
INSTALLED = driver.ROOT / "test" / "installed"

# What chooses and speeds up the GPU's driver; an app gets nothing else of the tests'
# environment.
_KEPT = ("LP_", "MESA_", "VK_")


def run(
    program: Path, *arguments: str, folder: Path
) -> subprocess.CompletedProcess[bytes]:
    """Runs an app in a folder. The dynamic linker tells what was loaded into it, from
    its start to its end: ExecuTorch's runtime, and neither Python nor what needs it."""
    env = {name: text for name, text in os.environ.items() if name.startswith(_KEPT)}
    env |= {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(folder / "loaded")}
    for told in folder.glob("loaded.*"):
        told.unlink()
    done = subprocess.run(
        [program, *arguments], cwd=folder, env=env, capture_output=True, timeout=600
    )
    (told,) = folder.glob("loaded.*")
    loaded = set(re.findall(r"file=(\S+) ", told.read_text()))
    assert any("libexecutorch.so" in name for name in loaded), loaded
    assert not [name for name in loaded if "python" in name or "_shim" in name], loaded
    return done


def check_classify(program: Path, folder: Path) -> None:
    """`classify` with folder/model.pte, whose scores are means of colours."""
    # Wider than high, of green squares between black edges.
    row = bytes(3 * 20) + bytes((0, 250, 0)) * 60 + bytes(3 * 20)
    (folder / "picture.ppm").write_bytes(b"P6 # a comment\n100 60\n255\n" + row * 60)
    (folder / "labels.txt").write_text("red\ngreen\nblue\n")
    done = run(program, "model.pte", "picture.ppm", "labels.txt", folder=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2] == b"100.0%  green"


def check_both(build: Path, folder: Path) -> None:
    """The same of test/installed: linked with the library, and with the archive, which
    the linker must not drop."""
    for name, has_library in (("classify_shared", True), ("classify_static", False)):
        check_classify(build / name, folder)
        (loaded,) = folder.glob("loaded.*")
        assert has_library == ("libexecutorch_backend_webgpu" in loaded.read_text())
