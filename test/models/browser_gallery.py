"""Exports the gallery's models for the tests in a browser:

    python -m pytest -n 2 test/models/browser_gallery.py

As `python examples/gallery build/gallery` does, in a fraction of its time, because what
keeps tests short (fast_export.py) is on here. What is up to date is left as it is.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from gallery import shared
from gallery.catalogue import CATALOGUE

FOLDER = Path(__file__).parents[2] / "build" / "gallery"
# The one that the bench page is tested with.
WITH_PEER = "pitch"


# The large ones first, so that the last is not waited for.
@pytest.mark.parametrize("name", reversed(CATALOGUE))
def test_a_model_of_the_gallery(name: str) -> None:
    folder, _ = shared.write(FOLDER, name, onnx=name == WITH_PEER)
    assert (folder / shared.PROGRAM).stat().st_size > 1 << 20
