"""The command line: dumps of plans, and the adapter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from harness import lower

from executorch_webgpu import cli
from executorch_webgpu.runtime import device


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    length = torch.export.Dim("length", min=1, max=64)
    path = tmp_path_factory.mktemp("cli") / "model.pte"
    model = torch.nn.Linear(8, 4)
    path.write_bytes(lower(model, (torch.randn(5, 8),), ({0: length},)).buffer)
    return path


def test_dump_prints_buffers_launches_and_kernels(program, capsys):
    assert cli.main(["dump", str(program), "--wgsl"]) == 0
    text = capsys.readouterr().out
    assert "aten.linear.default" in text
    assert "float32 [64, 8]" in text
    assert "in [1, 64]" in text
    assert "fn main(" in text


def test_dump_of_live_shapes(program, capsys):
    assert cli.main(["dump", str(program), "--shapes", "3x8"]) == 0
    assert "float32 [3, 8]" in capsys.readouterr().out
    assert cli.main(["dump", str(program), "--shapes", "65x8"]) == 1
    assert "must be in [1, 64], got 65" in capsys.readouterr().err


def test_dump_of_all_sizes(program, capsys):
    """Grids are expressions of the size, and the guards say which plan is whose."""
    assert cli.main(["dump", str(program), "--variants"]) == 0
    text = capsys.readouterr().out
    assert "variant 1 of " in text
    assert ": 64}, holds if" in text
    assert "ceil(" in text
    assert "no variant" not in text


def test_a_file_that_is_not_there_is_named(tmp_path, capsys):
    for command in (["dump"], ["tuning", "--export"]):
        missing = tmp_path / "no_such_folder" / "model.pte"
        if command[0] == "tuning":
            (tmp_path / "no_such_folder").write_text("a file, not a folder")
        assert cli.main([*command, str(missing)]) == 1
        assert "no_such_folder" in capsys.readouterr().err


def test_adapter_is_named(capsys):
    assert cli.main(["adapter"]) == 0
    assert capsys.readouterr().out.strip() == device.get_device().caps.name
