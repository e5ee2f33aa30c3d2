"""The code in a page of the documentation: its fenced blocks, in order.

    python test/pages.py README.md      # runs its Python, each block in its own process

Enters: Markdown. Leaves: blocks by language; a process's failure is the command's.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Block:
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    fence = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
    return [
        Block(language, re.sub(rf"^{indent}", "", code, flags=re.MULTILINE))
        for indent, language, code in fence.findall(text)
    ]


def execute(block: Block, names: dict[str, Any]) -> str:
    """What a block of Python prints in this process, whose names it has and changes."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(block.text, "a page", "exec"), names)
    return out.getvalue()


def run(page: Path, python: Path, folder: Path) -> list[str]:
    """What each block of Python prints that is run in `folder`, which they share."""
    said = []
    for block in blocks(page):
        if block.language == "python":
            # Isolated, so that only what is installed is found.
            command = [python, "-I", "-c", block.text]
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            said.append(done.stdout)
    return said


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print(*run(Path(sys.argv[1]), Path(sys.executable), Path(scratch)), sep="\n")
