"""Generates the Python code of schemas, builds the shim with CMake, and places the
.pth file that registers the backend with the standard runtime. Where npm is, the
browser's runtime and pages are built too, for `python -m executorch_webgpu serve`.

Each build uses a build directory of its own; only the editable install keeps
one (build/editable), and holds a lock on it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from setuptools import Command, Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
PACKAGE = ROOT / "executorch_webgpu"
SCHEMAS = (
    PACKAGE / "ir" / "schema.fbs",
    PACKAGE / "portable" / "plans.fbs",
    PACKAGE / "vulkan" / "vk_graph.fbs",
)
AUTOLOAD = ("_executorch_webgpu_autoload.py", "executorch_webgpu.pth")


def package_dir(name: str) -> Path:
    """Where an installed package is, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"setup: {name} must be installed to build")
    return Path(next(iter(spec.submodule_search_locations)))


def wgpu_version() -> int:
    """wgpuGetVersion() of the wgpu that the shim is built for."""
    code = "from wgpu.backends.wgpu_native._ffi import lib; print(lib.wgpuGetVersion())"
    return int(subprocess.check_output([sys.executable, "-c", code], text=True))


def generate_schema(schema: Path) -> None:
    """executorch_webgpu/ROOM/NAME.fbs to ROOM/_schema/NAME_generated.py."""
    flatc = package_dir("executorch") / "data" / "bin" / "flatc"
    if sys.platform == "win32":
        flatc = flatc.with_suffix(".exe")
    options = ["--python", "--gen-object-api", "--gen-onefile"]
    name = f"{schema.stem}_generated.py"
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([flatc, *options, "-o", scratch, schema], check=True)
        (made,) = Path(scratch).rglob(name)
        text = made.read_text()
    replace_text(schema.parent / "_schema" / name, text)


def replace_text(path: Path, text: str) -> None:
    """Writes in one step and only if needed: other builds may be reading."""
    if path.exists() and path.read_text() == text:
        return
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(text)
    scratch.replace(path)


@contextlib.contextmanager
def build_directory(editable: bool) -> Iterator[Path]:
    if not editable:
        with tempfile.TemporaryDirectory(prefix="executorch-webgpu-") as scratch:
            yield Path(scratch)
        return
    directory = ROOT / "build" / "editable"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        lock_file(lock.fileno())
        yield directory


def lock_file(descriptor: int) -> None:
    """Waits until no other build has the file; it is freed when closed."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)


def tool(name: str) -> str:
    """A build tool from its wheel: the system's may be too old."""
    places = [package_dir(name) / "data" / "bin", Path(sys.executable).parent]
    for path in (*map(str, places), None):
        found = shutil.which(name, path=path)
        if found is not None:
            return found
    raise RuntimeError(f"setup: {name} must be on PATH to build")


def is_manylinux() -> bool:
    """Whether there are wheels of ExecuTorch for this system's kind of Linux."""
    is_known = platform.machine() in ("x86_64", "aarch64")
    return sys.platform == "linux" and is_known and platform.libc_ver()[0] == "glibc"


def build_shim(directory: Path, target: Path, **others: str) -> None:
    """Compiles the shim, and the backend for apps without Python, in `directory`, and
    puts the module in `target`; `others` are more definitions for CMake."""
    definitions = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_MAKE_PROGRAM": tool("ninja"),
        "Python_EXECUTABLE": sys.executable,
        "executorch_DIR": package_dir("executorch") / "share" / "cmake",
        "pybind11_DIR": package_dir("pybind11") / "share" / "cmake" / "pybind11",
        "WGPU_INCLUDE_DIR": package_dir("wgpu") / "resources",
        "WGPU_VERSION": wgpu_version(),
        **others,
    }
    cmake = tool("cmake")
    subprocess.run(
        [cmake, "-S", ROOT, "-B", directory, "-G", "Ninja"]
        + [f"-D{name}={value}" for name, value in definitions.items()],
        check=True,
    )
    subprocess.run([cmake, "--build", directory, "--parallel", "2"], check=True)
    for module in [*directory.glob("_shim*.so"), *directory.glob("_shim*.pyd")]:
        place(module, target)


def place_library(directory: Path, target: Path) -> None:
    """Puts what an app without Python needs into the package at `target`: the library,
    and the same as an archive."""
    for name in (".so", ".dylib", ".dll", ".a", "_static.lib"):
        for library in directory.glob(f"*executorch_backend_webgpu{name}"):
            place(library, target / "lib")
    for header in (ROOT / "csrc" / "include" / "executorch_webgpu").iterdir():
        place(header, target / "include" / "executorch_webgpu")
    place(
        directory / "cmake" / "executorch_webgpu-config-version.cmake", target / "cmake"
    )


def place(file: Path, target: Path) -> None:
    """Copies into a folder in one step: other processes may have the file there."""
    target.mkdir(parents=True, exist_ok=True)
    scratch = target / f".{file.name}.{os.getpid()}"
    shutil.copy2(file, scratch)
    scratch.replace(target / file.name)


def place_pages(directory: Path, target: Path) -> None:
    """Builds web/ in `directory` and puts it into the package at `target`. A package
    without pages is whole but for `serve`, which says that they are missing."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not (ROOT / "web" / "package.json").exists() or node is None or npm is None:
        print("setup: no pages for `serve` in this build: web/ and npm must be there")
        return
    # In a copy: a build leaves nothing in the sources. Pages show their exporters.
    web = directory / "web"
    skip = shutil.ignore_patterns("node_modules", "dist", "test")
    shutil.copytree(ROOT / "web", web, ignore=skip)
    exporters = directory / "examples" / "gallery"
    shutil.copytree(ROOT / "examples" / "gallery", exporters)
    modules = ROOT / "web" / "node_modules"
    if modules.exists():
        (web / "node_modules").symlink_to(modules, target_is_directory=True)
    elif subprocess.run([npm, "ci"], cwd=web, check=False).returncode != 0:
        print("setup: no pages for `serve` in this build: npm ci must succeed")
        return
    subprocess.run([node, "build.mjs"], cwd=web, check=True)
    # Without the bench page, whose peer is larger than all the rest.
    subprocess.run([node, "build_site.mjs", "--no-bench"], cwd=web, check=True)
    shutil.rmtree(target / "web", ignore_errors=True)
    shutil.copytree(web / "dist", target / "web")


class BuildSchema(build_py):
    """build_py with the schemas generated before."""

    def run(self) -> None:
        for schema in SCHEMAS:
            generate_schema(schema)
        super().run()


class BuildShim(build_ext):
    """build_ext through CMake."""

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        given = {"EXECUTORCH_WEBGPU_VERSION": self.distribution.get_version()}
        if not self.editable_mode and is_manylinux():
            # A wheel goes to other systems, an editable install stays here.
            given["EXECUTORCH_WEBGPU_GLIBC_2_28"] = "ON"
        with build_directory(self.editable_mode) as directory:
            build_shim(directory, target, **given)
            # An editable install copies modules from `target`, and nothing else.
            place_library(directory, PACKAGE if self.editable_mode else target)
            # Pages of the source tree are built by `make web`.
            if not self.editable_mode:
                place_pages(directory, target)


class BuildAutoload(Command):
    """Puts the .pth file and its module at the root of site-packages."""

    editable_mode = False

    def initialize_options(self) -> None:
        self.target = ""

    def finalize_options(self) -> None:
        if self.editable_mode:
            self.target = self.get_finalized_command("install").install_lib
        else:
            self.target = self.get_finalized_command("build").build_lib

    def run(self) -> None:
        Path(self.target).mkdir(parents=True, exist_ok=True)
        for name in AUTOLOAD:
            shutil.copy2(ROOT / "autoload" / name, Path(self.target, name))

    def get_outputs(self) -> list[str]:
        return [] if self.editable_mode else [f"{self.target}/{n}" for n in AUTOLOAD]

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def get_source_files(self) -> list[str]:
        return [f"autoload/{name}" for name in AUTOLOAD]


class Build(build):
    """build with one more step, in a directory of its own."""

    sub_commands = [*build.sub_commands, ("build_autoload", None)]  # noqa: RUF012

    def initialize_options(self) -> None:
        super().initialize_options()
        # Kept by the process, which does one build: the wheel is made from it.
        self._scratch = tempfile.TemporaryDirectory(prefix="executorch-webgpu-")
        self.build_base = self._scratch.name


# setuptools runs this file as a script; scripts/sanitize.sh imports it.
if __name__ == "__main__":
    # Metadata is asked for before anything is built, and names all packages.
    for schema in SCHEMAS:
        (schema.parent / "_schema").mkdir(exist_ok=True)
        (schema.parent / "_schema" / "__init__.py").touch()

    setup(
        ext_modules=[Extension("executorch_webgpu._shim", sources=[])],
        cmdclass={
            "build": Build,
            "build_autoload": BuildAutoload,
            "build_ext": BuildShim,
            "build_py": BuildSchema,
        },
    )
