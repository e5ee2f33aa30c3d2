"""EfficientNet-Lite0 in an app without Python, on the photograph that it comes with."""

from __future__ import annotations

import runpy
from pathlib import Path

import apps
import driver
import pytest


@pytest.mark.long
def test_an_app_without_python_sees_a_cat(tmp_path: Path) -> None:
    prepare = runpy.run_path(str(apps.EXAMPLES / "prepare_classify.py"))
    prepare["main"](tmp_path)
    program = driver.build_app(apps.EXAMPLES, "classify")
    files = ("model.pte", "picture.ppm", "labels.txt")
    done = apps.run(program, *files, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    best = done.stdout.splitlines()[2]
    assert b"cat" in best, done.stdout
