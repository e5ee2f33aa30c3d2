"""`etwgpu bench`: what is measured, what is compared, and what is said."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cli_models
import numpy as np
import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from harness import lower

from executorch_webgpu import WebGPUPartitioner, cli, stats
from executorch_webgpu.cli import bench, engines, markdown
from executorch_webgpu.cli.bench_report import parts, percentile
from executorch_webgpu.cli.decoder import Decoder, decoder_of
from executorch_webgpu.cli.engines import Task, stored
from executorch_webgpu.cli.loaded import Loaded
from executorch_webgpu.cli.program import methods
from executorch_webgpu.cli.worker import Call, Served, Worker
from executorch_webgpu.errors import InvalidInput, WebGPUError

ROOT = Path(__file__).parents[1]
EAGER = ("--eager", "cli_models:small")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "small.pte"
    path.write_bytes(lower(*cli_models.small()).buffer)
    return path


@pytest.fixture(scope="module", params=["decoder", "first_decoder"])
def decoder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, torch.nn.Module]:
    """A language model of each convention, which tells how long its cache is."""
    model, inputs, shapes = getattr(cli_models, request.param)()
    with torch.no_grad():
        lowered = to_edge_transform_and_lower(
            torch.export.export(model, inputs, dynamic_shapes=shapes),
            partitioner=[WebGPUPartitioner()],
            constant_methods={"get_max_context_len": cli_models.CONTEXT},
        )
    path = tmp_path_factory.mktemp("bench") / "decoder.pte"
    path.write_bytes(lowered.to_executorch().buffer)
    return path, model


class Near:
    """A worker in this process, which has all modules already."""

    def __init__(self, engine: str, task: Task, is_verbose: bool) -> None:
        self.engine = engine
        self._served = Served(engine, task)

    def ask(self, what: str, *args: Any) -> Any:
        try:
            return getattr(self._served, what)(*args)
        except WebGPUError as error:
            raise WebGPUError(f"{self.engine}: {error}") from error

    def close(self) -> None:
        pass


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "Worker", Near)


def told(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    code = cli.main(["bench", *map(str, words)])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line that is said of a failure, and no result."""
    assert cli.main(["bench", *map(str, words)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    (line,) = (each for each in err.splitlines() if each.startswith("etwgpu: "))
    return line


def rows(text: str) -> list[dict[str, str]]:
    """The rows of all tables, by their headers."""
    found = []
    for each in text.split("\n\n"):
        lines = [line.strip("| ").split(" | ") for line in each.splitlines()]
        if each.startswith("|"):
            found += [dict(zip(lines[0], line)) for line in lines[2:]]
    return found


def test_a_program_is_measured_in_a_process_of_its_own(small, capsys):
    (case,) = json.loads(told(capsys, small, "--runs", "7", "--json"))["cases"]
    assert case["inputs"] == ["64x8"]
    (ours,) = case["engines"]
    run = ours["tests"]["run"]
    assert run["runs"] == 7
    assert ours["load_seconds"] > 0
    assert ours["first_seconds"] > 0
    assert 0 < run["p50_seconds"] <= run["p90_seconds"] <= run["p99_seconds"]
    of = run["mean_seconds_of"]
    assert all(seconds > 0 for seconds in of.values())
    assert sum(of.values()) == pytest.approx(run["mean_seconds"])
    # Inputs, outputs, weights and what is between them, in a process of Python's size.
    assert 64 * (8 + 4) * 4 < ours["gpu_bytes"] < 1 << 20
    assert 1 << 26 < ours["resident_bytes_before"] < ours["peak_resident_bytes"]


def test_what_a_worker_cannot_do_is_said(small, tmp_path):
    """An error has its trace; an end has the last words."""
    task = Task(small, "forward", stored([]), tmp_path, "cli_models:refusing")
    worker = Worker("eager", task, False)
    with pytest.raises(
        WebGPUError, match=r"^eager: .* ValueError: no weights here$"
    ) as e:
        worker.ask("prepare")
    assert "in refusing" in str(e.value.__cause__)
    worker.close()
    task = Task(small, "forward", stored([]), tmp_path, "cli_models:ending")
    worker = Worker("eager", task, False)
    with pytest.raises(WebGPUError) as e:
        worker.ask("prepare")
    assert str(e.value) == "eager: its process ended with code 3: out of everything"
    worker.close()


def test_the_table_has_a_row_for_each_shape(near, small, capsys):
    words = ("--shapes", "3x8", "--shapes", "64x8", "--runs", "3")
    text = told(capsys, small, *words)
    heading = text.splitlines()[0]
    assert heading.startswith(f"{small}, ")
    assert heading.endswith(f", forward, on {stats().adapter}")
    times = [row for row in rows(text) if "p99" in row]
    assert [(row["inputs"], row["runs"]) for row in times] == [
        ("3x8", "3"),
        ("64x8", "3"),
    ]
    where = [row for row in rows(text) if "GPU ms" in row]
    number = r"[\d.,]+ ± [\d.,]+"
    for row in where:
        cells = [row[f"{part} ms"] for part in ("upload", "GPU", "read-back", "host")]
        assert all(re.fullmatch(number, cell) for cell in cells), cells


def test_peers_take_turns_and_are_compared(near, small, capsys):
    words = (*EAGER, "--against", "eager,xnnpack", "--runs", "4")
    (case,) = json.loads(told(capsys, small, *words, "--json"))["cases"]
    assert case["inputs"] == ["5x8"]
    ours, *peers = case["engines"]
    assert [each["engine"] for each in peers] == ["eager", "xnnpack"]
    assert peers[0]["load_seconds"] is None
    for each in peers:
        run = each["tests"]["run"]
        assert run["runs"] == 4
        assert each["difference"] < 1e-5
        ratio = run["p50_seconds"] / ours["tests"]["run"]["p50_seconds"]
        assert run["ratio_to_ours"] == pytest.approx(ratio)
        assert "mean_seconds_of" not in run
    text = told(capsys, small, *EAGER, "--against", "eager", "--runs", "2")
    times = [row for row in rows(text) if "ratio to ours" in row]
    assert [(row["engine"], row["load ms"] == "-") for row in times] == [
        ("webgpu", False),
        ("eager", True),
    ]
    assert times[0]["ratio to ours"] == "1"


def test_turns_alternate(near, small, capsys, monkeypatch):
    asked = []
    ask = Near.ask
    monkeypatch.setattr(
        Near,
        "ask",
        lambda self, what, *args: (
            asked.append((self.engine, what, *args)) or ask(self, what, *args)
        ),
    )
    monkeypatch.setattr(bench, "_TURN_SECONDS", 1e-9)
    monkeypatch.setattr(bench, "_MOST_TURNS", 3)
    told(capsys, small, *EAGER, "--against", "eager", "--runs", "5")
    calls = [(engine, *args) for engine, what, *args in asked if what == "calls"]
    warm, turns = calls[:2], calls[2:]
    assert warm == [("webgpu", 1), ("eager", 1)]
    order = ["webgpu", "eager", "eager", "webgpu", "webgpu", "eager"]
    assert [engine for engine, _ in turns] == order
    assert sum(count for engine, count in turns if engine == "eager") == 5


def test_the_documented_tables_are_printed(near, small, capsys, monkeypatch):
    monkeypatch.setitem(engines.ENGINES, "xnnpack", engines.Torch)  # need not lower
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    ((command, shown),) = re.findall(
        r"^\$ etwgpu (bench[^\n]*--eager[^\n]*)\n(.*?)```", text, re.S | re.M
    )
    words = command.replace("my_models:classifier", "cli_models:small").split()[2:]
    printed = told(capsys, small, *words, "--runs", "2")
    assert [list(row) for row in rows(printed)] == [list(row) for row in rows(shown)]
    assert [row.get("engine") for row in rows(printed)] == [
        row.get("engine") for row in rows(shown)
    ]


def test_a_peer_of_another_model_is_refused(near, small, capsys):
    words = ("--eager", "cli_models:wide", "--against", "eager")
    line = refused(capsys, small, *words)
    assert (
        "eager: outputs must have the program's shapes [[5, 4]], got [[5, 5]]" in line
    )


def onnxruntime(chosen: str, *available: str) -> SimpleNamespace:
    """A stand-in, whose sessions run on a provider."""
    session = SimpleNamespace(get_providers=lambda: [chosen], get_inputs=lambda: [])
    return SimpleNamespace(
        get_available_providers=lambda: list(available),
        SessionOptions=SimpleNamespace,
        InferenceSession=lambda *args, **options: session,
    )


def test_onnx_runtime_must_be_there_with_webgpu(near, small, capsys, monkeypatch):
    words = (small, *EAGER, "--against", "ort")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "run `pip install onnxruntime-webgpu`" in refused(capsys, *words)
    without = onnxruntime("CPUExecutionProvider", "CPUExecutionProvider")
    monkeypatch.setitem(sys.modules, "onnxruntime", without)
    line = refused(capsys, *words)
    assert "needs ONNX Runtime with WebGPU, got one with CPUExecutionProvider" in line


def test_onnx_runtime_on_the_cpu_is_refused(near, small, capsys, monkeypatch):
    webgpu = engines.Ort._PROVIDER
    fallen = onnxruntime("CPUExecutionProvider", webgpu, "CPUExecutionProvider")
    monkeypatch.setitem(sys.modules, "onnxruntime", fallen)
    monkeypatch.setattr(torch.onnx, "export", lambda *args, **options: None)
    line = refused(capsys, small, *EAGER, "--against", "ort")
    assert f"must run on {webgpu}, got CPUExecutionProvider" in line


def test_a_language_model_is_measured_in_tokens(near, decoder, capsys):
    path, _ = decoder
    words = (path, "--llm", "-p", "20", "-n", "5", "--runs", "2")
    (case,) = json.loads(told(capsys, *words, "--json"))["cases"]
    tests = case["engines"][0]["tests"]
    assert {name: test["tokens"] for name, test in tests.items()} == {
        "pp20": 20,
        "tg5": 5,
    }
    for test in tests.values():
        assert test["runs"] == len(test["tokens_per_second"]) == 2
        assert all(rate > 0 for rate in test["tokens_per_second"])
        mean = np.mean([test["tokens"] / rate for rate in test["tokens_per_second"]])
        assert test["mean_seconds"] == pytest.approx(mean)
    found = rows(told(capsys, *words))
    rates = {row["test"]: row["t/s"] for row in found if "t/s" in row}
    assert set(rates) == {"pp20", "tg5"}
    assert all(" ± " in rate for rate in rates.values())
    assert [row["token of"] for row in found if "token of" in row] == ["pp20", "tg5"]
    line = refused(capsys, *words, "-n", cli_models.CONTEXT + 1)
    assert f"must fit the context of {cli_models.CONTEXT}, got 25" in line


@pytest.mark.parametrize("at_once", [20, 1])
def test_the_calls_of_a_text_are_those_of_a_language_model(decoder, at_once):
    """The last logits are what the model gives for all tokens in one call."""
    path, model = decoder
    found = {each.name: each for each in methods(path.read_bytes())}
    calls = decoder_of(found, "forward").text(20, at_once, seed=1)
    lengths = [call[0].shape[1] for call in calls]
    assert lengths == ([8, 8, 4] if at_once > 1 else [1] * 20)
    loaded = Loaded(path, "forward")
    (logits,) = [loaded.call(call) for call in calls][-1]
    tokens = torch.cat([call[0] for call in calls], 1)
    positions = torch.arange(1 if model.is_first else 20)
    with torch.no_grad():
        expected = model(tokens, positions)
    torch.testing.assert_close(logits[0, -1], expected[0, -1])


def test_an_integer_is_the_position_of_the_first_token():
    calls = Decoder(4, "integer", 7, None).text(6, 6, seed=0)
    assert [call[1] for call in calls] == [0, 4]


def test_what_is_no_language_model_is_refused(near, small, capsys):
    line = refused(capsys, small, "--llm")
    assert "must be a method of tokens, int64 [1, S]" in line
    assert line.endswith("got float32 [64, 8]")


def test_peers_of_a_language_model_get_its_calls(near, decoder, capsys):
    path, model = decoder
    name = "first_decoder" if model.is_first else "decoder"
    words = ("--eager", f"cli_models:{name}", "--llm", "-p", "10", "-n", "2")
    text = told(capsys, path, *words, "--against", "eager", "--runs", "1")
    rates = [row for row in rows(text) if "t/s" in row]
    assert len(rates) == 4
    assert all(float(r["differs"]) < 1e-5 for r in rates if r["engine"] == "eager")
    line = refused(capsys, path, *words, "--against", "ort")
    assert "ort: keeps no cache between calls, which --llm needs" in line


def test_what_is_wrong_is_said(near, small, tmp_path, capsys):
    text = tmp_path / "text.pte"
    text.write_text("no program")
    assert "must be an ExecuTorch program, got b'no progr'" in refused(capsys, text)
    line = refused(capsys, small, "--against", "xnnpack")
    assert "needs the model, got none; give --eager module:function" in line
    line = refused(capsys, small, *EAGER, "--against", "tinygrad")
    assert "must be of xnnpack, eager, ort, with commas, got tinygrad" in line
    assert "--runs: must be 1 or more, got 0" in refused(capsys, small, "--runs", 0)
    line = refused(capsys, small, "--shapes", "65x8")
    assert "input 0 must have shape [up to 64, up to 8], got [65, 8]" in line
    line = refused(capsys, small, "--shapes", "threeXeight")
    assert "must be sizes such as 1x128, got threeXeight" in line
    line = refused(capsys, small, "--shapes", "3x8", "3x8")
    assert "must get one for each of its 1 tensors, got 2" in line
    line = refused(capsys, small, "--shapes", "3x8", "--input", "x.npy")
    assert "are for random inputs, got files" in line
    line = refused(capsys, small, "--eager", "cli_models:several")
    assert "must take the program's 1 inputs, got 2" in line


def test_parts_are_what_calls_tell():
    calls = [Call(1.0, 0.1, 0.5, 0.2), Call(2.0, 0.2, 1.0, 0.3)]
    found = parts(calls)
    assert found is not None
    assert found["host"] == pytest.approx([0.2, 0.5])
    assert parts([*calls, Call(1.0)]) is None


def test_numbers_for_people():
    assert percentile([3.0, 1.0, 2.0, 4.0], 50) == 2.0
    assert percentile([float(each) for each in range(1, 101)], 99) == 99
    assert [markdown.number(x) for x in (0.0, 1234.5, 12.34, 0.01234)] == [
        "0.00",
        "1,234",
        "12.3",
        "0.0123",
    ]
    assert markdown.mean_and_spread([1.0, 2.0, 3.0]) == "2.00 ± 1.00"
    assert markdown.byte_count(5570) == "5.57 kB"


def test_the_context_of_a_program_is_held(decoder):
    path, _ = decoder
    found = {each.name: each for each in methods(path.read_bytes())}
    made = decoder_of(found, "forward")
    assert made == Decoder(
        cli_models.LONGEST,
        made.positions,
        cli_models.VOCABULARY,
        cli_models.CONTEXT,
    )
    with pytest.raises(InvalidInput, match="must fit the context of 24, got 25"):
        made.check(25)
