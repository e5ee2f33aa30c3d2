"""The backend from its sources without Python: built, installed, found and linked."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import apps
import driver
import pytest
import torch
from driver import ROOT, setup
from executorch.exir import to_edge_transform_and_lower

from executorch_webgpu import WebGPUPartitioner

# All that a compiler needs, and no Python.
TOOLS = ("c++", "as", "ld", "ar", "ranlib", "nm", "objcopy", "strip", "sh")


class Install:
    """A copy of the sources, and where it is built and installed to."""

    def __init__(self, folder: Path) -> None:
        self.sources = folder / "sources"
        self.build = folder / "build"
        self.prefix = folder / "prefix"
        self.package = self.prefix / "lib" / "cmake" / "executorch_webgpu"
        tools = folder / "bin"
        tools.mkdir()
        for name in TOOLS:
            found = shutil.which(name)
            assert found is not None, name
            (tools / name).symlink_to(found)
        self.env = {"PATH": str(tools)}
        self.executorch = setup.package_dir("executorch") / "share" / "cmake"
        for name in ("csrc", "executorch_webgpu/cmake"):
            shutil.copytree(ROOT / name, self.sources / name)
        for name in ("CMakeLists.txt", "pyproject.toml"):
            shutil.copy2(ROOT / name, self.sources / name)

    def configure(self, source: Path, folder: Path, **definitions: object) -> None:
        given = {"executorch_DIR": self.executorch, **definitions}
        driver.configure(source, folder, env=self.env, **given)
        # Where CMake has looked for Python, it keeps that.
        cache = (folder / "CMakeCache.txt").read_text()
        assert not re.search(r"^_?Python", cache, re.MULTILINE)

    def run_cmake(self, *words: str | Path) -> None:
        driver.run(setup.tool("cmake"), *words, env=self.env)

    def wgpu(self) -> dict[str, object]:
        """What a build is told of wgpu-native, by the name of its release."""
        version = setup.wgpu_version()
        numbers = [str(version >> shift & 255) for shift in (24, 16, 8, 0)]
        return {
            "WGPU_INCLUDE_DIR": driver.wgpu_library().parent,
            "WGPU_VERSION": ".".join(numbers),
        }


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> Install:
    made = Install(tmp_path_factory.mktemp("install"))
    # What is built is not measured, and takes half as long to compile.
    flags = {"EXECUTORCH_WEBGPU_SHIM": "OFF", "CMAKE_CXX_FLAGS_RELEASE": "-DNDEBUG"}
    made.configure(made.sources, made.build, **flags, **made.wgpu())
    made.run_cmake("--build", made.build, "--parallel", "2")
    made.run_cmake("--install", made.build, "--prefix", made.prefix)
    return made


def test_contents(install: Install) -> None:
    """Libraries, headers and the package, with no path of the machine that built it."""
    files = {
        path.relative_to(install.prefix).as_posix()
        for path in install.prefix.rglob("*")
        if path.is_file()
    }
    assert files == {
        "include/executorch_webgpu/backend.h",
        "lib/libexecutorch_backend_webgpu.a",
        "lib/libexecutorch_backend_webgpu.so",
        *(
            f"lib/cmake/executorch_webgpu/executorch_webgpu-{name}.cmake"
            for name in (
                *("config", "config-version", "link", "targets", "targets-release"),
            )
        ),
    }
    for name in files:
        content = (install.prefix / name).read_bytes()
        for place in (install.build, install.prefix, install.executorch.parents[1]):
            assert str(place).encode() not in content, name


class Means(torch.nn.Module):
    """Scores that are the means of red, green and blue."""

    def forward(self, x: torch.Tensor) -> Any:
        return x.mean((2, 3)) * 10


def export(folder: Path) -> None:
    """folder/model.pte, as `classify` takes it."""
    exported = torch.export.export(Means(), (torch.zeros(1, 3, 224, 224),))
    partitioner = WebGPUPartitioner(portable=True)
    lowered = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    (folder / "model.pte").write_bytes(lowered.to_executorch().buffer)


def test_an_app_finds_and_links_it(install: Install, tmp_path: Path) -> None:
    """As a shared library, and as an archive that the linker must not drop."""
    export(tmp_path)
    build = tmp_path / "build"
    install.configure(
        apps.INSTALLED,
        build,
        CMAKE_PREFIX_PATH=install.prefix,
        WGPU_LIBRARY=driver.wgpu_library(),
    )
    install.run_cmake("--build", build)
    apps.check_both(build, tmp_path)


def test_a_build_is_found_that_is_not_installed(
    install: Install, tmp_path: Path
) -> None:
    export(tmp_path)
    given = {"executorch_webgpu_DIR": install.build / "cmake"}
    given["WGPU_LIBRARY"] = driver.wgpu_library()
    install.configure(apps.INSTALLED, tmp_path / "build", **given)
    install.run_cmake("--build", tmp_path / "build")
    apps.check_both(tmp_path / "build", tmp_path)


def include(install: Install, folder: Path) -> None:
    """Configures an app whose build has the backend's sources in it."""
    given = {"BACKEND_SOURCES": install.sources, **install.wgpu()}
    given["WGPU_LIBRARY"] = driver.wgpu_library()
    install.configure(apps.INSTALLED, folder, **given)


@pytest.mark.long  # it compiles all that `install` has compiled
def test_sources_may_be_part_of_an_app(install: Install, tmp_path: Path) -> None:
    export(tmp_path)
    include(install, tmp_path / "build")
    install.run_cmake("--build", tmp_path / "build", "--parallel", "2")
    apps.check_both(tmp_path / "build", tmp_path)


def test_how_an_app_links_sources_that_are_part_of_it(
    install: Install, tmp_path: Path
) -> None:
    include(install, tmp_path)
    for name, kept in (("shared", "--no-as-needed"), ("static", "--whole-archive")):
        command = (setup.tool("ninja"), "-C", tmp_path, "-t", "commands")
        *_, link = driver.run(*command, f"classify_{name}").splitlines()
        suffix = {"shared": "so", "static": "a"}[name]
        library = rf"{kept}\S*\s+\S*libexecutorch_backend_webgpu\.{suffix}\s"
        assert re.search(library, link), link


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"WGPU_VERSION": ""}, "WGPU_VERSION must be that of wgpu-native, such as"),
        ({"WGPU_INCLUDE_DIR": "/no"}, "WGPU_INCLUDE_DIR must have webgpu.h and wgpu.h"),
        ({"WGPU_LIBRARY": "/no.so"}, "WGPU_LIBRARY must be a WebGPU library or NONE"),
    ],
)
def test_what_is_refused(
    install: Install, tmp_path: Path, changed: dict[str, object], said: str
) -> None:
    given = {"EXECUTORCH_WEBGPU_SHIM": "OFF", **install.wgpu(), **changed}
    with pytest.raises(AssertionError, match=said):
        install.configure(install.sources, tmp_path, **given)


def test_a_library_that_an_app_names_must_exist(
    install: Install, tmp_path: Path
) -> None:
    given = {"CMAKE_PREFIX_PATH": install.prefix, "WGPU_LIBRARY": "/no/such.so"}
    with pytest.raises(
        AssertionError, match=r"WGPU_LIBRARY must be .*, got\s+'/no/such"
    ):
        install.configure(apps.INSTALLED, tmp_path, **given)
