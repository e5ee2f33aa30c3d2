"""The command line: what is in a program, dumps of plans, a call, the adapter."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from harness import Function, lower
from PIL import Image

from executorch_webgpu import WebGPUPartitioner, cli
from executorch_webgpu.runtime import device

ROOT = Path(__file__).parents[1]
LINEAR = torch.nn.Linear(8, 4)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    length = torch.export.Dim("length", min=1, max=64)
    path = tmp_path_factory.mktemp("cli") / "model.pte"
    path.write_bytes(lower(LINEAR, (torch.randn(5, 8),), ({0: length},)).buffer)
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


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A picture in, with plans for players without Python."""
    path = tmp_path_factory.mktemp("cli") / "picture.pte"
    model = Function(lambda x: x.mean((2, 3)))
    made = lower(
        model, (torch.ones(1, 3, 4, 6),), None, WebGPUPartitioner(portable=True)
    )
    path.write_bytes(made.buffer)
    return path


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A product on the GPU, and float64 on the CPU."""
    path = tmp_path_factory.mktemp("cli") / "mixed.pte"
    model = Function(lambda x: torch.mm(x, x).double() * 2.5)
    path.write_bytes(lower(model, (torch.randn(4, 4),)).buffer)
    return path


def told(capsys, *words: str) -> str:
    assert cli.main(list(words)) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys, *words: str) -> str:
    """The one line that is said of a failure."""
    assert cli.main(list(words)) == 1
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = (each for each in err.splitlines() if each.startswith("etwgpu: "))
    assert "Traceback" not in err
    return line


def test_inspect_tells_arguments_sizes_and_places(program, capsys):
    text = told(capsys, "inspect", str(program))
    (size,) = {line.split()[0] for line in text.splitlines() if "in [1, 64]" in line}
    assert f"input 0: float32 [{size}, 8]" in text
    assert f"output 0: float32 [{size}, 4]" in text
    assert "on the GPU: 1 op in 1 dispatch of 1 kernel; weights 144 bytes" in text
    assert "on the CPU" not in text
    assert "runs in Python: yes" in text
    assert "runs in C++: no: it carries no plans; export with portable=True" in text


def test_the_documented_example_is_what_is_printed(tmp_path, capsys):
    """But for the size of the file, and for the adapter and what it needs."""
    length = torch.export.Dim("length", min=1, max=64)
    partitioner = WebGPUPartitioner(portable=True)
    shapes = ({0: length},)
    made = lower(LINEAR, (torch.randn(5, 8),), shapes, partitioner=partitioner)
    (tmp_path / "model.pte").write_bytes(made.buffer)
    text = told(capsys, "inspect", str(tmp_path / "model.pte"))
    documented = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^\$ etwgpu inspect.*?\n(.*?)```", documented, re.S | re.M)
    lines = [
        [re.sub(r"all buffers .*", "", line) for line in each.splitlines()[1:]]
        for each in (shown, re.sub(r"\bs\d+\b", "s0", text))
    ]
    assert lines[0] == lines[1]


def test_inspect_as_json(portable, capsys):
    content = json.loads(told(capsys, "inspect", str(portable), "--json"))
    assert content["bytes"] == portable.stat().st_size
    (method,) = content["methods"]
    assert method["inputs"] == [{"type": "float32", "shape": [1, 3, 4, 6]}]
    assert method["outputs"] == [{"type": "float32", "shape": [1, 3]}]
    assert method["on_gpu"][0]["plan_bytes"] > 0
    places = ("Python", "C++", "browser", "browser without f16")
    assert method["runs_in"] == dict.fromkeys(places, "yes")


def test_inspect_names_what_is_on_the_cpu(mixed, capsys):
    (method,) = json.loads(told(capsys, "inspect", str(mixed), "--json"))["methods"]
    assert method["on_cpu"]
    assert all(op.startswith(("aten::", "dim_order_ops::")) for op in method["on_cpu"])
    text = told(capsys, "inspect", str(mixed))
    assert f"on the CPU: {', '.join(method['on_cpu'])}" in text


def test_inspect_names_the_limit_that_a_browser_breaks(portable, capsys, monkeypatch):
    small = cli.inspect.replace(cli.inspect.AOT_CAPS, max_storage_buffers=1)
    monkeypatch.setitem(cli.inspect._BROWSERS, "browser", small)
    text = told(capsys, "inspect", str(portable))
    assert "runs in browser: no: browser: the device must have, for profile" in text
    assert "max-storage-buffers-per-shader-stage of " in text
    assert "runs in browser without f16: yes" in text


def test_run_on_an_array_writes_the_outputs(program, tmp_path, capsys):
    x = torch.randn(3, 8)
    np.save(tmp_path / "x.npy", x.numpy())
    words = ("--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npz"))
    content = json.loads(told(capsys, "run", str(program), *words, "--json"))
    with np.load(tmp_path / "y.npz") as file:
        result = file["output0"]
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(result), LINEAR(x))
    (output,) = content["outputs"]
    assert (output["type"], output["shape"]) == ("float32", [3, 4])
    assert output["max"] == float(result.max())


def test_run_on_random_numbers_of_the_largest_sizes(program, mixed, capsys):
    text = told(capsys, "run", str(program))
    assert text.startswith("output 0: float32 [64, 4] min ")
    assert told(capsys, "run", str(program)) == text
    assert told(capsys, "run", str(program), "--seed", "1") != text
    assert told(capsys, "run", str(mixed)).startswith("output 0: float64 [4, 4] min ")


def test_run_on_a_picture(portable, tmp_path, capsys):
    Image.new("RGB", (20, 10), (255, 51, 0)).save(tmp_path / "red.png")
    words = ("--input", str(tmp_path / "red.png"), "--output", str(tmp_path / "y.npz"))
    told(capsys, "run", str(portable), *words)
    with np.load(tmp_path / "y.npz") as file:
        np.testing.assert_allclose(file["output0"], [[1, 0.2, 0]], atol=1e-6)


def test_run_says_what_is_wrong_with_an_input(program, portable, tmp_path, capsys):
    def saved(name: str, array: np.ndarray) -> tuple[str, str, str, str]:
        np.save(tmp_path / name, array)
        return "run", str(program), "--input", str(tmp_path / name)

    line = refused(capsys, *saved("long.npy", np.zeros((65, 8), np.float32)))
    assert "must have shape [up to 64, up to 8], got [65, 8]" in line
    line = refused(capsys, *saved("wide.npy", np.zeros((3, 7), np.float32)))
    assert "must have shape [" in line
    assert "got [3, 7]" in line
    line = refused(capsys, *saved("double.npy", np.zeros((3, 8))))
    assert "must be of type float32, got float64" in line
    line = refused(capsys, "run", str(program), "--input", "random", "random")
    assert "forward must get 1 inputs, got 2" in line
    line = refused(capsys, "run", str(program), "--method", "backward")
    assert "must be one of forward, got backward" in line
    (tmp_path / "text.npy").write_text("no array")
    line = refused(capsys, "run", str(program), "--input", str(tmp_path / "text.npy"))
    assert "must be an .npy file or a picture, got" in line
    Image.new("RGB", (2, 2)).save(tmp_path / "red.png")
    line = refused(capsys, "run", str(program), "--input", str(tmp_path / "red.png"))
    assert "a picture is for an input [1, 3, height, width], got [64, 8]" in line


@pytest.mark.parametrize("command", ["inspect", "run", "dump"])
def test_a_file_that_is_no_program(command, program, tmp_path, capsys):
    path = tmp_path / "model.pte"
    path.write_bytes(b"PK\3\4 an archive")
    line = refused(capsys, command, str(path))
    assert "must be an ExecuTorch program, got b'PK" in line
    path.write_bytes(program.read_bytes()[:200])
    assert "the program must be whole, got 200 bytes" in refused(
        capsys, command, str(path)
    )


def test_results_are_on_stdout_and_all_else_on_stderr(program):
    command = [sys.executable, "-m", "executorch_webgpu"]
    done = subprocess.run(
        [*command, "inspect", str(program), "--json"], capture_output=True, check=True
    )
    assert json.loads(done.stdout)["methods"]
    done = subprocess.run(
        [*command, "--verbose", "run", "none.pte"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("etwgpu: ")
    assert "none.pte" in done.stderr.splitlines()[-1]
