"""`etwgpu profile`: what it measures, counts, writes and refuses."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import Function, lower
from test_debug_handles import Block, Exported, export

from executorch_webgpu import cli
from executorch_webgpu.runtime import device

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`block.pte` with its record, and `rows.pte` of any number of rows."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("profile")
    block: Exported = export(Block(), (torch.randn(1, 3, 5, 7),), folder)
    (folder / "block.pte").write_bytes(block.program.buffer)
    length = torch.export.Dim("length", min=1, max=64)
    rows = lower(torch.nn.Softmax(1), (torch.randn(5, 8),), ({0: length},))
    (folder / "rows.pte").write_bytes(rows.buffer)
    return folder


def told(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    status = cli.main(["profile", *map(str, words), "--json", "--runs", "2"])
    out, err = capsys.readouterr()
    assert status == 0, err
    return json.loads(out)


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert cli.main(["profile", *map(str, words)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    (line,) = (each for each in err.splitlines() if each.startswith("etwgpu: "))
    return line


def test_launches_are_timed_and_counted(folder: Path, capsys) -> None:
    found = told(capsys, folder / "block.pte")
    adapter = device.get_device(is_timed=True)
    assert found["timed_by"] == ("gpu" if adapter.has_times else "host")
    launches = found["launches"]
    assert [each["op"] for each in launches][:2] == [
        "aten.convolution.default",
        "aten.linear.default",
    ]
    assert all(each["microseconds"] > 0 for each in launches)
    ends = [each["begin"] + each["shown"] for each in launches]
    for end, following in zip(ends, launches[1:]):
        assert end <= following["begin"] + 1e-3
    assert launches[0]["multiply_adds"] == 8 * 5 * 7 * 3 * 9
    assert launches[1]["multiply_adds"] == 35 * 24 * 8
    # Two products of 35 by 35, of vectors of 8.
    assert {each["multiply_adds"] for each in launches[2:]} == {2 * 35 * 35 * 8}
    assert math.isclose(sum(row["share"] for row in found["rows"]), 1)
    assert sum(row["launches"] for row in found["rows"]) == len(launches)


def test_a_row_has_only_rates_that_are_known(folder: Path, capsys) -> None:
    """The launches of attention share its arithmetic; a softmax has none to tell."""
    by_op = told(capsys, folder / "block.pte", "--by", "op")["rows"]
    rates = {row["name"]: row["gigaflops"] for row in by_op}
    assert all(rate > 0 for rate in rates.values())
    by_kernel = told(capsys, folder / "block.pte", "--by", "kernel")["rows"]
    rates = {row["name"]: row["gigaflops"] for row in by_kernel}
    assert rates["attention_weights"] is None
    assert rates["conv_lanes"] > 0
    (row,) = told(capsys, folder / "rows.pte", "--by", "op")["rows"]
    assert row["gigaflops"] is None
    assert row["gigabytes_per_second"] > 0


def test_bytes_are_of_the_live_sizes(folder: Path, capsys) -> None:
    for words, rows in (((), 64), (("--shapes", "3x8"), 3)):
        found = told(capsys, folder / "rows.pte", *words)
        assert [each["moved"] for each in found["launches"]] == [2 * rows * 8 * 4]


def test_bytes_of_picked_elements_are_not_known(tmp_path: Path, capsys) -> None:
    table = torch.randn(100, 4)
    program = lower(Function(lambda i: table[i]), (torch.tensor([3, 5]),))
    (tmp_path / "pick.pte").write_bytes(program.buffer)
    (launch,) = told(capsys, tmp_path / "pick.pte")["launches"]
    assert launch["moved"] is None
    assert cli.main(["profile", str(tmp_path / "pick.pte")]) == 0
    assert re.search(r"100\.0% +- +-$", capsys.readouterr().out.strip())


def test_launches_alone_are_the_same(folder: Path, capsys) -> None:
    at_once = told(capsys, folder / "block.pte")
    alone = told(capsys, folder / "block.pte", "--alone")
    assert alone["timed_by"] == "host"
    assert "each launch submitted alone" in alone["how"]
    names, wanted = (
        [each["name"] for each in found["launches"]] for found in (alone, at_once)
    )
    assert names == wanted


def test_modules_are_those_of_the_record(folder: Path, capsys) -> None:
    record = folder / "model.etrecord"
    found = told(capsys, folder / "block.pte", "--by", "module", "--etrecord", record)
    # What is of several modules is of the one that they are in.
    assert [row["name"] for row in found["rows"]] == ["(model)"]
    assert {each["module"] for each in found["launches"]} == {"(model)"}


def test_trace_and_page(folder: Path, tmp_path: Path, capsys) -> None:
    trace, page = tmp_path / "t.json", tmp_path / "r.html"
    found = told(capsys, folder / "block.pte", "--trace", trace, "--html", page)
    events = json.loads(trace.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in spans] == [
        each["op"] for each in found["launches"]
    ]
    assert all(event["dur"] > 0 for event in spans)
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)=|url\(|https?:|import """, text)
    # Drawn by the page's own code: a tile and a bar for each launch.
    done = subprocess.run(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
            "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--no-first-run", "--disable-quic",
            f"--user-data-dir={tmp_path}", "--dump-dom", page.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )  # fmt: skip
    drawn = re.findall(r'<button[^>]*data-at="(\d+)"', done.stdout)
    assert sorted(map(int, drawn)) == sorted(2 * [*range(len(spans))])


def test_bad_input_is_one_line(folder: Path, tmp_path: Path, capsys) -> None:
    block, rows = folder / "block.pte", folder / "rows.pte"
    record = folder / "model.etrecord"
    assert "must get --etrecord, got none" in refused(capsys, block, "--by", "module")
    assert "must be an ETRecord" in refused(capsys, block, "--etrecord", block)
    assert "no_such" in refused(capsys, block, "--etrecord", tmp_path / "no_such")
    assert "must be an ExecuTorch program" in refused(capsys, record)
    assert "[up to 64, up to 8], got [65, 8]" in refused(
        capsys, rows, "--shapes", "65x8"
    )
    assert "must be sizes such as 1x128" in refused(capsys, rows, "--shapes", "?")
    assert "its 1 tensors, got 2" in refused(capsys, rows, "--shapes", "1x8", "1x8")
    assert "must be one of forward" in refused(capsys, rows, "--method", "backward")
    assert "must be at least 1, got 0" in refused(capsys, rows, "--runs", "0")
    full = ("--trace", "/dev/full")
    assert "No space left on device" in refused(capsys, rows, *full)
    on_cpu = lower(Function(lambda x: x.double() * 2), (torch.randn(3),))
    (tmp_path / "cpu.pte").write_bytes(on_cpu.buffer)
    assert "got nothing; see `etwgpu inspect`" in refused(capsys, tmp_path / "cpu.pte")
