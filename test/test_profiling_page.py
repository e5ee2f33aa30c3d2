"""docs/profiling.md: its code and its commands run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from executorch_webgpu import cli

PAGE = Path(__file__).parents[1] / "docs" / "profiling.md"


def test_the_tutorial_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # What the page says that an event is called.
    (event,) = re.findall(r"is called `(#0 [^`]*)`", text)
    assert event in done.stdout
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ etwgpu (.*)$", text, re.MULTILINE)
    assert len(commands) == 4
    said = []
    for command in commands:
        assert cli.main(command.split()) == 0, capsys.readouterr().err
        said.append(capsys.readouterr().out)
    (shown,) = re.findall(r"profile model.pte\n(.*?)```", text, re.DOTALL)
    wanted, found = (
        sorted(re.findall(r"^(\w+) +1 ", s, re.M)) for s in (shown, said[0])
    )
    assert len(wanted) == 2
    assert wanted == found
    assert (tmp_path / "trace.json").stat().st_size > 0
    assert "<script" in (tmp_path / "report.html").read_text(encoding="utf-8")
