"""What the tests of the player share: a process of it, and plans written by hand."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import driver
import handmade
import pytest
from driver import PlayerDriver


@pytest.fixture(scope="session")
def fb(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The schema's code, of which the player has none."""
    folder = tmp_path_factory.mktemp("schema")
    flatc = driver.setup.package_dir("executorch") / "data" / "bin" / "flatc"
    schema = driver.ROOT / "executorch_webgpu" / "portable" / "plans.fbs"
    flags = ["--python", "--gen-object-api", "--gen-onefile"]
    subprocess.run([flatc, *flags, "-o", folder, schema], check=True)
    (made,) = folder.rglob("plans_generated.py")
    spec = importlib.util.spec_from_file_location("plans_generated", made)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def program() -> Path:
    return driver.build("player_driver")


@pytest.fixture
def start(program: Path, tmp_path: Path) -> Iterator[Callable[..., PlayerDriver]]:
    handmade.write_data(tmp_path / "data")
    started: list[PlayerDriver] = []

    def start_one(*flags: str, **env: str) -> PlayerDriver:
        started.append(PlayerDriver(program, tmp_path, *flags, **env))
        return started[-1]

    yield start_one
    for each in started:
        each.close()


@pytest.fixture
def player(start: Callable[..., PlayerDriver]) -> PlayerDriver:
    return start()


@pytest.fixture
def good(fb: ModuleType) -> bytes:
    return handmade.packed(handmade.plans(fb))
