"""Autotune: forms that are timed, the file of times, and what may be wrong in it."""

from __future__ import annotations

import gc
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime

from executorch_webgpu import WebGPUPartitioner, _shim, cli, ir, options
from executorch_webgpu.errors import InvalidInput
from executorch_webgpu.ir import serialize
from executorch_webgpu.ir.dtypes import DType
from executorch_webgpu.plan.plan import Plan
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.runtime import delegate, device, tuning, tuning_file


class Mixed(torch.nn.Module):
    """One op for every choice that is offered for float weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 9, 3, padding=1)
        self.linear = torch.nn.Linear(37, 19)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.conv(x).flatten(2)
        return torch.softmax(self.linear(y), -1), y @ y.transpose(1, 2)


@pytest.fixture(scope="module")
def model() -> Mixed:
    torch.manual_seed(0)
    return Mixed().eval()


@pytest.fixture(scope="module")
def pte(model: Mixed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    batch = torch.export.Dim("batch", max=3)
    program = torch.export.export(
        model, (torch.ones(2, 3, 1, 37),), dynamic_shapes={"x": {0: batch}}
    )
    edge = to_edge_transform_and_lower(program, partitioner=[WebGPUPartitioner()])
    path = tmp_path_factory.mktemp("tuning") / "mixed.pte"
    path.write_bytes(edge.to_executorch().buffer)
    return path


@pytest.fixture(autouse=True)
def _options_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_overrides", {})


def plans(pte: Path, tuned: dict[str, str] | None = None) -> Plan:
    ((_, blob),) = cli.delegates(pte.read_bytes())
    graph = serialize.read(blob)
    return Planner(graph, device.get_device().caps, tuned).upper_bound()


def test_a_time_is_that_of_the_work() -> None:
    """Nothing is left to wait for when a form's time is taken."""
    gpu = device.get_device()
    graph = ir.Graph()
    for name in ("a", "b", "y"):
        graph.add(ir.Value(name, DType.FLOAT32, (1024, 1024), (1024, 1024)))
    graph.inputs, graph.outputs = [0, 1], [2]
    graph.calls = [ir.Call("aten.mm.default", [ir.Ref(0), ir.Ref(1)], [2])]
    plan = Planner(graph, gpu.caps).upper_bound()
    trial = tuning._Trial("mm", gpu, tuning.alone(plan, 0))
    trial.run(4)
    whole = 4 * trial.run(4)
    start = time.perf_counter()
    gpu.finish()
    rest = time.perf_counter() - start
    trial.close()
    assert rest < whole / 4


def check(pte: Path, model: Mixed) -> None:
    program = Runtime.get().load_program(pte)
    method = program.load_method("forward")
    assert method is not None
    for batch in (3, 1):
        x = torch.randn(batch, 3, 1, 37)
        with torch.no_grad():
            expected = model(x)
        for result, wanted in zip(method.execute([x]), expected, strict=True):
            torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-5)


def use(path: Path) -> None:
    _shim.set_option("autotune", True)
    _shim.set_option("tuning_file", str(path))


def test_nothing_is_measured_unless_asked(
    pte: Path, model: Mixed, tmp_path: Path
) -> None:
    _shim.set_option("tuning_file", str(tmp_path / "times.json"))
    check(pte, model)
    assert not list(tmp_path.iterdir())
    plan = plans(pte)
    assert len(plan.choices) == 4
    assert all(choice.chosen == choice.names[0] for choice in plan.choices)


def test_forms_are_timed_once_and_kept(
    pte: Path, model: Mixed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cache" / "times.json"
    use(path)
    gc.collect()
    before = delegate.stats()
    check(pte, model)
    gc.collect()
    after = delegate.stats()
    assert (after.buffers, after.bind_groups) == (before.buffers, before.bind_groups)
    (found,) = tuning_file.read(path).values()
    assert {choice.key for choice in plans(pte).choices} <= found.keys()
    for measured in found.values():
        assert measured.best in measured.microseconds
        assert len(measured.microseconds) > 1
        assert min(measured.microseconds.values()) > 0

    def measured_again(trials: object) -> tuple[str, dict[str, float]]:
        raise AssertionError("timed twice")

    monkeypatch.setattr(tuning, "_fastest", measured_again)
    check(pte, model)
    path.unlink()
    with pytest.raises(RuntimeError):
        check(pte, model)


def test_every_form_computes_the_same(pte: Path, model: Mixed, tmp_path: Path) -> None:
    key = tuning.device_key(device.get_device())
    choices = plans(pte).choices
    for turn in range(1, max(len(choice.names) for choice in choices)):
        best = {c.key: c.names[turn % len(c.names)] for c in choices}
        path = tmp_path / f"times{turn}.json"
        entries = {
            k: tuning_file.Measured(name, {name: 1.0}) for k, name in best.items()
        }
        tuning_file.write(path, {key: entries})
        use(path)
        check(pte, model)
        assert {c.key: c.chosen for c in plans(pte, best).choices} == best


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be JSON"),
        ("[1, 2", "must be JSON"),
        ("[]", "must have format 1, got None"),
        ('{"format": 2, "devices": {}}', "must have format 1, got 2"),
        ('{"format": 1}', "must list measurements"),
        ('{"format": 1, "devices": {"d": {"k": {"best": 3}}}}', "must list"),
        ("\udcff", "must be readable"),
        ("[" * 100_000, "must be JSON"),
        ("1" * 5_000, "must be JSON"),
        (
            '{"format": 1, "devices": {"d": {"k": {"best": "a", "microseconds":'
            f' {{"a": {10**400}}}}}}}}}}}',
            "must list",
        ),
    ],
)
def test_a_damaged_file_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, said: str
) -> None:
    path = tmp_path / "times.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InvalidInput, match=said):
        tuning_file.read(path)
    with caplog.at_level(logging.WARNING, "executorch_webgpu"):
        file = tuning_file.TuningFile(path, "device")
    assert said in caplog.text
    assert file.choices() == {}
    file.add("key", tuning_file.Measured("a", {"a": 1.5, "b": 2.0}))
    assert tuning_file.TuningFile(path, "device").choices() == {"key": "a"}
    assert tuning_file.TuningFile(path, "other").choices() == {}


def test_forms_of_another_version_are_ignored(pte: Path) -> None:
    tuned = {choice.key: "a form that was" for choice in plans(pte).choices}
    assert plans(pte, tuned) == plans(pte)


def test_a_file_that_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    file = tuning_file.TuningFile(tmp_path / "other.json", "device")
    file.path = tmp_path / "file" / "times.json"  # its directory is a file
    with caplog.at_level(logging.WARNING, "executorch_webgpu"):
        file.add("key", tuning_file.Measured("a", {}))
        file.add("more", tuning_file.Measured("b", {}))
    assert caplog.text.count("cannot be written") == 1
    assert file.choices() == {"key": "a", "more": "b"}


def test_what_others_measured_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    one = tuning_file.TuningFile(path, "device")
    two = tuning_file.TuningFile(path, "device")
    one.add("a", tuning_file.Measured("x", {"x": 1.0}))
    two.add("b", tuning_file.Measured("y", {"y": 1.0}))
    assert tuning_file.TuningFile(path, "device").choices() == {"a": "x", "b": "y"}


def test_the_command_line_exports_and_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, copy = tmp_path / "times.json", tmp_path / "copy.json"
    monkeypatch.setenv("ET_WEBGPU_TUNING_FILE", str(path))
    measured = tuning_file.Measured("lanes", {"lanes": 2.5, "tiled": 9.0})
    tuning_file.TuningFile(path, "device").add("matmul 1x2x3 float32", measured)
    assert cli.main(["tuning", "--export", str(copy)]) == 0
    assert cli.main(["tuning", "--clear"]) == 0
    assert not path.exists()
    assert cli.main(["tuning", "--import", str(copy)]) == 0
    assert json.loads(path.read_text()) == json.loads(copy.read_text())
    assert cli.main(["tuning"]) == 0
    printed = capsys.readouterr().out
    assert "matmul 1x2x3 float32: lanes (lanes 2.5 us, tiled 9.0 us)" in printed
    assert cli.main(["tuning", "--import", str(tmp_path / "none.json")]) == 1
    assert "must exist" in capsys.readouterr().err


def test_the_environment_switches_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_WEBGPU_AUTOTUNE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert options.current().autotune
    assert options.current().tuning_path.name == "tuning.json"


class Scripted:
    """A form whose times are given: what its tries say, then each round."""

    def __init__(self, name: str, tries: list[float], rounds: list[float]) -> None:
        self.name, self.best = name, float("inf")
        self._times = iter([tries[0], *tries, *rounds])

    def run(self, repeats: int) -> float:
        return next(self._times)


def fastest(tries: list[float], rounds: list[float]) -> str:
    """The winner of a first form that takes 1 ms and of one with these times."""
    first = Scripted("first", [1e-3] * 3, [1e-3] * 7)
    return tuning._fastest([first, Scripted("other", tries, rounds)])[0]


def test_a_form_must_win_in_most_rounds() -> None:
    ms = 1e-3
    assert fastest([ms / 2] * 3, [ms / 2] * 7) == "other"
    assert fastest([ms] * 3, [ms] * 7) == "first"
    # Not by the 5% that it takes.
    assert fastest([ms] * 3, [0.97 * ms] * 7) == "first"


@pytest.mark.parametrize("lie", [1e-6, 1.0])
def test_one_wrong_time_changes_nothing(lie: float) -> None:
    ms = 1e-3
    for place in range(7):
        faster, slower = [ms / 2] * 7, [1.01 * ms] * 7
        faster[place] = slower[place] = lie
        assert fastest([ms / 2] * 3, faster) == "other"
        assert fastest([ms] * 3, slower) == "first"
    for place in range(3):
        tries = [ms / 2] * 3
        tries[place] = lie
        assert fastest(tries, [ms / 2] * 7) == "other"
    # One that is too slow each time is not run again.
    assert fastest([9 * ms] * 3, []) == "first"


@pytest.mark.parametrize("better_together", [True, False])
def test_forms_must_win_together(
    pte: Path,
    model: Mixed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    better_together: bool,
) -> None:
    compared = []

    def choose(trials: list[Any], gain: float = 0.95) -> tuple[str, dict[str, float]]:
        names = [trial.name for trial in trials]
        times = dict.fromkeys(names, 1.0)
        if names == ["first", "found"]:
            for trial in trials:
                assert trial.run(1) > 0
            compared.append(gain)
            return names[better_together], times
        return names[-1], times

    monkeypatch.setattr(tuning, "_fastest", choose)
    use(tmp_path / "times.json")
    check(pte, model)
    assert compared
    assert set(compared) == {1.0}
    (found,) = tuning_file.read(tmp_path / "times.json").values()
    for choice in plans(pte).choices:
        expected = choice.names[-1 if better_together else 0]
        assert found[choice.key].best == expected


def test_times_of_a_cpu_are_those_of_its_model_and_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = device.get_device()
    assert gpu.caps.is_cpu
    key = tuning.device_key(gpu)
    monkeypatch.setattr(os, "cpu_count", lambda: 1024)
    assert "1024 cores" in tuning.device_key(gpu)
    monkeypatch.setattr(tuning, "_processor", lambda: "another one")
    assert "another one, 1024 cores" in tuning.device_key(gpu)
    assert tuning.device_key(gpu) != key
