"""`etwgpu compare`: programs beside their models and beside bundled test cases."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import cli_models
import pytest
import torch
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.core import BundledProgram
from executorch.devtools.bundled_program.serialize import (
    serialize_from_bundled_program_to_flatbuffer,
)
from harness import Function, lower

from executorch_webgpu import cli
from executorch_webgpu.cli import bundle as bundles
from executorch_webgpu.cli import eager, layers
from executorch_webgpu.cli.differences import Tolerance, difference
from executorch_webgpu.plan import pointwise
from executorch_webgpu.plan.pointwise import formula

ROOT = Path(__file__).parents[1]


def write(path: Path, made: tuple[Any, ...]) -> Path:
    path.write_bytes(lower(*made).buffer)
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("compare") / "small.pte", cli_models.small())


@pytest.fixture
def wrong_tanh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that are loaded from now on have a kernel that is off."""
    name = "aten.tanh.default"
    monkeypatch.setitem(pointwise.FORMULAS, name, formula("tanhf(a) * 1.01"))


def told(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    code = cli.main(["compare", *map(str, words)])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line that is said of a failure."""
    assert cli.main(["compare", *map(str, words)]) == 1
    _, err = capsys.readouterr()
    assert "Traceback" not in err
    (line,) = (each for each in err.splitlines() if each.startswith("etwgpu: "))
    return line


def test_a_program_agrees_with_its_model(small, capsys):
    text = told(capsys, small, "--eager", "cli_models:small")
    (row,) = (line for line in text.splitlines() if "output 0" in line)
    assert row.startswith("| forward, output 0 | float32 | 5x4 | ")
    assert row.endswith(" | 0 of 20 |")
    words = ("--eager", "cli_models:small", "--json")
    (output,) = json.loads(told(capsys, small, *words))["outputs"]
    assert 0 <= output["max_abs"] < 1e-5
    assert output["snr_db"] is None or output["snr_db"] > 100
    assert not output["departs"]


def test_random_inputs_are_of_the_largest_sizes(small, capsys):
    words = ("--eager", "cli_models:small", "--input", "random", "--seed", "3")
    assert "| float32 | 64x4 |" in told(capsys, small, *words)


def test_the_first_op_that_departs_is_found(small, wrong_tanh, capsys):
    words = (small, "--eager", "cli_models:small", "--layers", "--json")
    assert cli.main(["compare", *map(str, words)]) == 1
    out, err = capsys.readouterr()
    content = json.loads(out)
    first = content["first"]
    assert (first["op"], first["module"]) == ("aten.tanh.default", "act")
    assert 0.009 < first["max_rel"] < 0.011
    assert not content["fused"]
    assert [each["op"] for each in content["worst"][-1:]] == ["aten.linear.default"]
    assert content["outputs"][0]["departs"]
    assert err.splitlines()[-1].startswith(
        "etwgpu: forward, output 0: departs: max abs"
    )


def test_ops_are_judged_where_no_output_is(small, wrong_tanh, capsys):
    """What a model makes of an op may hide it."""
    limit = ("--atol", "1e-2", "--rtol", "0")
    words = ("--eager", "cli_models:small", "--layers")
    assert "no op departs" in told(capsys, small, *words, *limit)
    limit = ("--atol", "6e-3", "--rtol", "0")
    line = refused(capsys, small, *words, *limit)
    assert "aten.tanh.default (tanh) in act" in line
    assert "departs, though no output does" in line


def test_results_that_are_read_later_are_compared_as_they_are_fused(wrong_tanh):
    model = eager.load("cli_models:small")
    cut = layers.Layers(model, model.flat)
    done: list[int] = []
    made = list(cut.compare(Tolerance(), lambda: done.append(1), whole=True))
    assert [each.op for each in made] == ["aten.linear.default"]
    assert made[0].name == "linear_1"
    assert made[0].is_at_fault
    assert len(done) == len(cut.cuts) == 1


def test_cuts_hold_every_result(monkeypatch, caplog):
    """Each tensor of the model is compared once, whatever it is cut into."""
    monkeypatch.setattr(layers, "_OPS", 4)
    model = eager.load("cli_models:several")
    cut = layers.Layers(model, model.flat)
    assert len(cut.cuts) > 2
    with caplog.at_level("WARNING"):
        made = list(cut.compare(Tolerance(), lambda: None))
    # A cut is exported for these sizes, and float64 alone stays on the CPU.
    assert "dynamic" not in caplog.text
    assert "float64" in caplog.text
    assert [each.describe() for each in made if each.difference.departs] == []
    ops = [each.op for each in made]
    assert len({each.name for each in made}) == len(made)
    for op in (
        "aten.split.Tensor [0]",
        "aten.split.Tensor [1]",
        "aten.topk.default [1]",
    ):
        assert ops.count(op) == 1
    assert "aten.conv2d.default" in ops
    assert ops[-1].startswith("aten.where.")


def test_a_model_with_a_state_is_cut_at_its_content_before_the_call(tmp_path, capsys):
    program = write(tmp_path / "decoder.pte", cli_models.decoder())
    words = (program, "--eager", "cli_models:decoder", "--layers")
    text = told(capsys, *words)
    assert "no op departs" in text
    assert "aten.index_put.default" in text
    model = eager.load("cli_models:decoder")
    with model.kept():
        model.call(model.flat)
        assert model.module.cache.any()
    assert not model.module.cache.any()


def bundled(path: Path, model: Any, calls: Any, off: float = 0.0) -> Path:
    """A bundle with one case for each call, whose outputs are off."""
    edge = lower(model, calls[0]).edge
    with torch.no_grad():
        cases = [MethodTestCase(inputs=x, expected_outputs=model(*x)) for x in calls]
    for case in cases:
        case.expected_outputs = [each + off for each in case.expected_outputs]
    made = BundledProgram(edge.to_executorch(), [MethodTestSuite("forward", cases)])
    path.write_bytes(serialize_from_bundled_program_to_flatbuffer(made))
    return path


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two calls with a picture and a number."""
    model = Function(lambda x, n: x * 2 + n)
    calls = [(torch.randn(1, 3, 4, 5), torch.tensor([n]).float()) for n in range(2)]
    return bundled(tmp_path_factory.mktemp("compare") / "b.bpte", model, calls)


def test_a_bundle_runs_its_own_cases(bundle, small, capsys):
    content = json.loads(told(capsys, "--bundle", bundle, "--json"))
    cases = [(each["case"], each["output"]) for each in content["outputs"]]
    assert cases == [("forward 0", 0), ("forward 1", 0)]
    assert all(each["shape"] == [1, 3, 4, 5] for each in content["outputs"])
    assert all(each["max_abs"] < 1e-5 for each in content["outputs"])
    line = refused(capsys, small, "--bundle", bundle)
    assert "etwgpu: forward: " in line


def test_a_bundle_that_expects_something_else(tmp_path, capsys):
    model = Function(lambda x: x * 2)
    made = bundled(tmp_path / "b.bpte", model, [(torch.ones(3),)], off=0.5)
    line = refused(capsys, "--bundle", made)
    assert "forward 0, output 0: departs: max abs 0.5, max rel 0.2" in line
    told(capsys, "--bundle", made, "--atol", "0.6")


def test_tensors_may_have_their_dimensions_in_another_order(tmp_path):
    x = torch.randn(1, 3, 4, 5).to(memory_format=torch.channels_last)
    path = bundled(tmp_path / "b.bpte", Function(lambda x: x * 2), [(x,)])
    (case,) = bundles.read(path).cases
    assert torch.equal(case.inputs[0], x)
    assert torch.equal(case.expected[0], x * 2)


def test_a_file_that_is_no_bundle(bundle, small, tmp_path, capsys):
    assert "must be a bundled program, got b'" in refused(capsys, "--bundle", small)
    part = tmp_path / "part.bpte"
    part.write_bytes(bundle.read_bytes()[:60])
    assert "the bundled program must be whole, got 60 bytes" in refused(
        capsys, "--bundle", part
    )


def test_what_is_wrong_is_said(small, tmp_path, capsys):
    line = refused(capsys, small, "--eager", "no_such_module:model")
    assert "got ModuleNotFoundError: No module named 'no_such_module'" in line
    line = refused(capsys, small, "--eager", "cli_models:no_such_function")
    assert "AttributeError" in line
    line = refused(capsys, small, "--eager", "cli_models")
    assert "must be module:function, got cli_models" in line
    line = refused(capsys, small, "--eager", "cli_models:refusing")
    assert line.endswith("got ValueError: no weights here")
    line = refused(capsys, small, "--eager", "cli_models:nothing")
    assert "must give (torch.nn.Module, tuple of inputs[, dynamic shapes])" in line
    line = refused(capsys, small, "--eager", "cli_models:several")
    assert "must take the program's 1 inputs, got 2" in line
    line = refused(capsys, "--eager", "cli_models:small")
    assert "needs a program to compare, got none" in line
    line = refused(capsys, small, "--bundle", "b.bpte", "--layers")
    assert "--layers: needs the model, got a bundle" in line
    line = refused(capsys, small, "--eager", "cli_models:wide")
    assert "output 0: departs: shape must be [5, 5], got [5, 4]" in line


def test_the_documented_example_is_what_is_printed(tmp_path, monkeypatch, capsys):
    """But for the numbers, which are as small."""
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(# my_models.py.*?)```", text, re.S)
    ((command, shown),) = re.findall(
        r"^\$ etwgpu (compare[^\n]*)\n(.*?)```", text, re.S | re.M
    )
    (tmp_path / "my_models.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    write(tmp_path / "model.pte", eager_parts("my_models:classifier"))
    printed = told(capsys, *command.split()[1:])
    assert measured(printed) == measured(shown)


def eager_parts(name: str) -> tuple[Any, ...]:
    model = eager.load(name)
    return model.module, model.flat


def measured(text: str) -> list[str]:
    """Tables sorted, without what depends on rounding."""
    lines = [
        re.sub(r"[\d.]+(e-\d+)? \| [\d.]+(e-\d+)? \| [\d.]+ \|", "", line)
        for line in text.strip().splitlines()
    ]
    return sorted(lines)


def found(got: Any, wanted: Any, **limits: float) -> Any:
    return difference(torch.tensor(got), torch.tensor(wanted), Tolerance(**limits))


def test_differences_are_measured_on_finite_elements():
    nan, inf = math.nan, math.inf
    same = found([nan, inf, -inf, 1.0], [nan, inf, -inf, 1.0])
    assert (same.max_abs, same.snr_db, same.departs) == (0, None, False)
    assert found([nan, 1.0], [1.0, nan]).departing == 2
    assert found([inf, 1.0], [-inf, 1.0]).departing == 1
    assert found([1e30], [inf]).departing == 1
    off = found([1.0, 2.5, 0.25], [1.0, 2.0, 0.0])
    assert (off.max_abs, off.max_rel, off.departing) == (0.5, 0.25, 2)
    assert off.snr_db == pytest.approx(10 * math.log10(5 / 0.3125))
    assert found([1.0], [0.0]).snr_db == -inf


def test_tolerances_are_by_type_and_by_the_largest_value():
    # A thousandth of the value, and a ten-thousandth of the largest.
    assert not found([100.09, 0.0099], [100.0, 0.0]).departs
    assert found([100.0, 0.0101], [100.0, 0.0]).departs
    assert found([0.0012, 0.001], [0.001, 0.001]).departs
    half = [torch.tensor([x], dtype=torch.float16) for x in (1.01, 1.0)]
    assert not difference(*half, Tolerance()).departs
    assert found([3], [4]).departs
    assert not found([3], [4], atol=1).departs
    assert found([1.0], [1]).problem == "type must be int64, got float32"
    assert found([1, 2], [1]).problem == "shape must be [1], got [2]"
    assert not found([0.5], [1.0], rtol=0.5).departs
