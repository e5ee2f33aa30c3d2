"""The tutorials: their code runs, in their order, and gives what they show.

Python runs in this process, `etwgpu` and the gallery's exporter, too; C++ is built with
the wheel (test_package.py). A block in `text` is the output of the one before it, with
`...` for what differs between machines; so do numbers with a point, and the names of
sizes.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pages
import pytest
from browser_gallery import FOLDER
from gallery import shared

from executorch_webgpu import cli
from executorch_webgpu.plan import pointwise, registry

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
# By other tests: a C++ app's sources, and what builds it.
ELSEWHERE = {"cpp", "cmake", "bash", "html"}


def command(line: str) -> None:
    """A line for the shell."""
    program, *words = shlex.split(line)
    if program == "etwgpu":
        assert cli.main(words) == 0
    else:
        assert [program, *words[:2]] == ["python", "examples/gallery", "build/gallery"]
        for name in words[2:]:
            shared.write(FOLDER, name)


def said(block: pages.Block, names: dict[str, Any]) -> str:
    """What a block of code writes."""
    if block.language == "python":
        return pages.execute(block, names)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        for line in block.text.splitlines():
            command(line)
    return out.getvalue()


def is_like(text: str, output: str) -> bool:
    text, output = (
        re.sub(r"\bs\d+\b", "s0", re.sub(r"\d+\.\d+", "#.#", each))
        for each in (text, output)
    )
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(text, output, flags)


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_the_code_gives_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "gallery").symlink_to(FOLDER)
    # What a page registers, no other test finds.
    monkeypatch.setattr(registry, "_OPS", registry.all_ops())
    monkeypatch.setattr(pointwise, "FORMULAS", dict(pointwise.FORMULAS))
    names: dict[str, Any] = {"__name__": "tutorial"}
    output, shown = "", 0
    for block in pages.blocks(page):
        if block.language == "text":
            assert is_like(block.text, output), (
                f"{page.name} shows\n{block.text}\nbut the code writes\n{output}"
            )
            shown += 1
        elif block.language in ("python", "sh"):
            output = said(block, names)
        else:
            assert block.language in ELSEWHERE, block.language
    assert shown, f"{page.name} must show what its code writes"
