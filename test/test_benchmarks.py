"""The benchmark itself: it measures a tiny case, and its arithmetic is right."""

from __future__ import annotations

import gc
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness import lower

import executorch_webgpu
from benchmarks import (
    against,
    cases,
    host_cost,
    llm,
    measure,
    peers,
    portable,
    prepare,
    published,
    report,
    worker,
)
from benchmarks.measure import Cell, Row

ROOT = Path(__file__).resolve().parent.parent


def rows() -> list[Row]:
    """Two cases: one where the peer takes 4 and 9 times as long, one that failed."""
    return [
        Row(
            "a",
            "case a",
            {
                "ours": Cell([0.001] * 3, [0.002] * 3),
                "ort-webgpu": Cell([0.004], [0.018]),
            },
            {"dispatches": 3, "kernels": 2, "gpu_bytes": 110, "needed_bytes": 100},
        ),
        Row(
            "b",
            "case b",
            {"ours": Cell([0.001], [0.002]), "ort-webgpu": Cell(failed="no adapter")},
        ),
    ]


def test_measures_ours_on_a_tiny_case(tmp_path: Path) -> None:
    row = measure.measure(cases.find("add_tiny"), [peers.OURS], 2, 1, tmp_path)
    cell = row.cells[peers.OURS]
    assert not cell.failed
    assert len(cell.wall) == len(cell.cpu) == 2
    assert min(cell.wall) > 0
    assert cell.error < 1e-6
    assert row.facts["dispatches"] == 1
    assert row.facts["gpu_bytes"] >= row.facts["needed_bytes"] == 2 * 4 * 32
    assert Row.from_dict(row.as_dict()) == row


def test_a_failing_peer_is_shown_with_its_reason(tmp_path: Path) -> None:
    for name in ("inputs", "expected"):
        np.savez(tmp_path / f"{name}.npz", np.zeros(3))
    (tmp_path / "case").write_text("nothing")
    row = Row("a", "case a", {"torch": Cell()})
    measure._one_process_each(row, 1, tmp_path)
    reason = row.cells["torch"].failed
    assert "case must be one of" in reason
    assert reason in report.failures([row])
    assert "failed" in report.times_table([row], report.wall)


def test_ratios_are_of_medians_and_means_are_geometric() -> None:
    first, second = rows()
    assert report.ratio(first, "ort-webgpu", report.wall) == pytest.approx(4)
    assert report.ratio(first, "ort-webgpu", report.cpu) == pytest.approx(9)
    assert math.isnan(report.ratio(second, "ort-webgpu", report.wall))
    assert report.geometric_mean([2.0, 8.0, math.nan]) == pytest.approx(4)
    assert report.spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(1 / 3)


def test_section_has_a_line_for_every_case() -> None:
    text = report.section(rows(), "a machine")
    assert "| case a | 4.00 | 9.00 |" in text
    assert "| **geometric mean** | **4.00** | **9.00** |" in text
    assert "| case b | 1.00 ±0% | failed |" in text
    assert "| case a | 3 | 2 | 0.000110 | 0.000100 | 1.10 |" in text
    assert "- case b, ONNX Runtime WebGPU: no adapter" in text


def test_a_peer_that_was_not_asked_has_no_time() -> None:
    text = report.section([*rows(), Row("c", "case c", {"ours": Cell([0.001])})], "")
    assert "| case c | 1.00 ±0% | - |" in text


def test_scaling_compares_with_the_size_before() -> None:
    table = report.scaling_table(
        [
            Row("batch_2", "two", {"ours": Cell([0.001], [0.001])}),
            Row("batch_8", "eight", {"ours": Cell([0.002], [0.003])}),
            Row("layers_1", "one", {"ours": Cell([0.002], [0.003])}),
        ]
    )
    assert "x4.00 | x3.00 |" in table
    assert table.splitlines()[-1].endswith("| - | - |")


def test_publishing_replaces_what_is_between_the_markers(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("a\n<!-- speed:start -->\nold\n<!-- speed:end -->\nb\n")
    assert report.publish(path, "speed", "new")
    assert report.publish(path, "speed", "newer")
    assert path.read_text() == (
        "a\n<!-- speed:start -->\nnewer\n<!-- speed:end -->\nb\n"
    )
    assert not report.publish(path, "scaling", "new")


def test_wrong_results_are_noticed() -> None:
    wanted = [np.array([1.0, -4.0])]
    assert worker.distance([np.array([1.0, -3.0])], wanted) == pytest.approx(0.25)
    with pytest.raises(RuntimeError, match="shape must be"):
        worker.distance([np.zeros(3)], wanted)


def test_what_was_published_is_read_back() -> None:
    page = report.replaced(
        "a\n<!-- speed:start -->\n<!-- speed:end -->\nb\n",
        "speed",
        report.section(rows(), "Measured on a day"),
    )
    speed = published.read(page)
    assert speed.run == "Measured on a day."
    assert speed.ours == {"case a": "1.00 ±0%", "case b": "1.00 ±0%"}
    assert speed.ratios == {"ONNX Runtime WebGPU": {"case a": 4.0}}


def test_the_chart_is_sorted_with_ours_between() -> None:
    ratios = {"slow": {"a": 2.0, "b": 8.0}, "slower": {"a": 9.0}, "fast": {"b": 0.5}}
    drawn = published.chart(published.Speed("a run", {"a": "1", "b": "1"}, ratios))
    names = ["slower", "slow", "executorch-webgpu", "fast"]
    heights = [re.search(rf'y="(\d+)"[^>]*>{name}<', drawn) for name in names]
    found = [int(height[1]) for height in heights if height]
    assert len(found) == len(names)
    assert found == sorted(found)
    assert "4.00x" in drawn
    assert drawn.count("<circle") == 4


def test_the_summary_has_the_mean_of_all_cases() -> None:
    titles = [cases.find(name).title for name in published.SUMMARY]
    ours = {title: "1.00 ±0%" for title in [*titles, "another"]}
    ratios = {"peer": {titles[0]: 2.0, "another": 8.0}}
    text = published.summary(published.Speed("a run", ours, ratios))
    assert f"| {titles[0]} | 2.00 | 1.00 ±0% |" in text
    assert f"| {titles[1]} | - | 1.00 ±0% |" in text
    assert f"| **geometric mean of {len(ours)} cases** | **4.00** |" in text


def plans_measured() -> portable.Measured:
    """One program of 100 MB on the GPU, and a call of it."""
    result = portable.Result(
        plans=50_000,
        file=10_000_000,
        profiles=2,
        variants=7,
        kernels=30,
        export=20.0,
        export_with_plans=25.0,
        planned=0.1,
        served=0.001,
        python=3.0,
        cpp=0.25,
        resident=130_000_000,
        driver=18_000_000,
        buffers=100_000_000,
    )
    host = host_cost.Host(1, bare=50.0, replay=60.0, method=80.0, cpp=54.0)
    return portable.Measured("a GPU", {"minilm": result}, [host])


def test_what_plans_cost_is_shown() -> None:
    text = portable.section(plans_measured())
    page = f"a\n<!-- portable:start -->\n{text}\n<!-- portable:end -->\nb\n"
    run, (head, row), (sentence,) = portable.read(page)
    assert "with `python -m benchmarks portable`, on a GPU, " in run
    assert tuple(head) == portable.HEAD
    assert row == [
        *(portable.TITLES["minilm"], "50 KB", "0.5%", "2", "7", "30", "x 1.25"),
        *("1/100", "1/12.0", "12 MB", "18 MB"),
    ]
    assert sentence == (
        "A call of 1 dispatch takes 54 us in C++: 0.90 of the replay's time in Python,"
        " and 0.68 of that with ExecuTorch's bindings. Beyond a bare C loop, which"
        " takes 50 us, these are +4, +10 and +30 us."
    )
    with pytest.raises(ValueError, match="must say when and on what"):
        portable.read(page.replace("Measured on", "Put together on"))


def test_what_plans_cost_was_published_by_the_command() -> None:
    _, (head, *rows), sentences = portable.read(portable.PAGE.read_text())
    assert tuple(head) == portable.HEAD
    assert [row[0] for row in rows] == [*portable.TITLES.values()]
    assert {len(row) for row in rows} == {len(head)}
    counts = [re.match(r"A call of (\d+) dispatch", each) for each in sentences]
    assert tuple(int(each[1]) for each in counts if each) == host_cost.DISPATCHES


def test_only_a_whole_run_is_published() -> None:
    with pytest.raises(SystemExit, match="must have all cases, got"):
        portable.main(["--cases", "layer", "--publish"])


@pytest.mark.long
def test_plans_of_a_small_program_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(portable, "FOLDER", tmp_path)
    monkeypatch.setattr(host_cost, "TURNS", 1)
    measured = portable.measure(["layer"], 1)
    (result,) = measured.results.values()
    assert result.variants > 1
    assert 0 < result.plans < result.file
    assert 0 < result.served < result.planned
    assert 0 < result.cpp < result.python
    assert result.resident < result.buffers + result.driver + (30 << 20)
    for host in measured.hosts:
        assert min(host.bare, host.replay, host.method, host.cpp) > 0


def test_unknown_names_are_refused() -> None:
    with pytest.raises(SystemExit, match="case must be one of"):
        cases.find("nothing")
    with pytest.raises(SystemExit, match="peer must be one of"):
        peers.find("nothing")


def test_tuned_is_compared_with_the_default() -> None:
    cells = {
        peers.OURS: Cell(cpu=[0.003], first=[1.0]),
        peers.TUNED: Cell(cpu=[0.002], first=[2.5]),
    }
    broken = {peers.OURS: Cell(), peers.TUNED: Cell(failed="no such file")}
    rows = [Row("a", "A", cells), Row("b", "B", broken)]
    text = report.tuned_table(rows)
    assert "| 1.50 | 1.00 / 2.50 |" in text
    assert "no such file" in text


def test_another_checkout_is_compared_by_medians_and_by_turns(tmp_path: Path) -> None:
    rows = [
        against.Compared(
            "a case",
            {against.OTHER: [0.002, 0.001, 0.003], against.THIS: [0.001, 0.002, 0.003]},
            {against.OTHER: [2.0], against.THIS: [1.0]},
        ),
        against.Compared("another", failed="other: no such op"),
    ]
    text = against.section(rows, "abc")
    assert "| a case | 2.00 | 2.00 | 1.00 | 0.50 to 2.00 | 0.50 |" in text
    assert "with commit abc." in text
    assert "- another: other: no such op" in text
    with pytest.raises(SystemExit, match="must be a checkout"):
        against.main([str(tmp_path)])


def test_tokens_per_second() -> None:
    made = {}
    for ending in ("", "_float"):
        ours = Cell(wall=[0.5], cpu=[1.0], busy=[0.48])
        cells = {peers.OURS: ours, "ort-webgpu": Cell([2.0], [4.0])}
        cells["xnnpack"] = Cell(failed="no such op")
        for kind in ("prefill", "step"):
            name = f"smollm{ending}_{kind}"
            title, facts = cases.find(name).title, {"dispatches": 365}
            made[name] = Row(name, title, dict(cells), facts)
    text = llm.table(made)
    assert "| executorch-webgpu, 4-bit weights | 128 | 2.00 | 64.0 | 1.00 |" in text
    assert "| ONNX Runtime WebGPU, float32 | 32.0 | 0.500 | 16.0 | 0.250 |" in text
    assert "no such op" in text
    assert "4.0% is the host's" in text
    assert "365 dispatches" in text


def test_rates_of_products_follow_from_the_table() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    said = re.search(r"products of 512 and 1024 are (\d+) and (\d+)\s+GFLOP/s", text)
    assert said is not None
    for size, rate in zip((512, 1024), said.groups()):
        row = re.search(rf"^\| matmul {size} \| ([\d.]+) ±", text, re.MULTILINE)
        assert row is not None
        assert round(2 * size**3 / float(row[1]) / 1e6) == int(rate)


def test_sentences_beside_the_tables_follow_from_them() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    said = re.search(r"mean against ONNX Runtime WebGPU is (\d+\.\d+)", text)
    table = text.split("| case | ONNX Runtime WebGPU |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| ([^*|]+) \| ([\d.]+) \|", table, re.MULTILINE)
    ratios = [float(ratio) for name, ratio in rows if "SmolLM2" not in name]
    assert said is not None
    assert len(ratios) == len(rows) - 2
    # The table's own digits, three of each, are what there is to compare with.
    assert report.geometric_mean(ratios) == pytest.approx(float(said[1]), rel=2e-3)
    share = re.search(r"with SmolLM2, ([\d.]+%) was the\s+host's", text)
    assert share is not None
    assert f"{share[1]} is the host's" in (ROOT / "docs" / "llm.md").read_text()


def memory(model: torch.nn.Module, *inputs: torch.Tensor) -> tuple[int, int]:
    """The bytes that a loaded program holds on the GPU, and those that it needs."""
    gc.collect()
    before = executorch_webgpu.stats().buffer_bytes
    program = lower(model, inputs)
    held = executorch_webgpu.stats().buffer_bytes - before
    return held, prepare.account(program.buffer)["needed_bytes"]


class Product(torch.nn.Module):
    """Two products in turn, so that one result is intermediate."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a @ b) @ b


def test_only_what_the_model_has_counts_as_needed() -> None:
    """Copies that a kernel makes of its operands do not."""
    inputs = torch.randn(256, 256), torch.randn(256, 256)
    held, needed = memory(Product(), *inputs)
    assert needed == 4 * 4 * 256 * 256  # two inputs, a result of each product
    assert held > needed


def test_results_that_nobody_reads_are_not_needed() -> None:
    """Such as the indices of a pool."""
    _, needed = memory(torch.nn.MaxPool2d(2), torch.randn(1, 4, 8, 8))
    assert needed == 4 * (256 + 64)


def test_views_and_fused_results_are_not_needed() -> None:
    class Chain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.softmax(torch.relu(x + 1).transpose(0, 1), -1)
            return torch.cumsum(y.unsqueeze(0), -1).exp()

    _, needed = memory(Chain(), torch.randn(64, 64))
    # Input and output, and what softmax takes (in its own order) and leaves.
    assert needed <= 4 * 4 * 64 * 64


def convolutions() -> tuple[torch.nn.Module, Any]:
    """Two inverted residuals, as in MobileNetV2."""

    def block(width: int) -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Conv2d(width, 4 * width, 1),
            torch.nn.ReLU6(),
            torch.nn.Conv2d(4 * width, 4 * width, 3, padding=1, groups=4 * width),
            torch.nn.ReLU6(),
            torch.nn.Conv2d(4 * width, width, 1),
        )

    return torch.nn.Sequential(block(32), block(32)), torch.randn(1, 32, 28, 28)


def encoder() -> tuple[torch.nn.Module, Any]:
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return model, torch.randn(1, 64, 256)


class Tied(torch.nn.Module):
    """A vocabulary that is read by its rows and multiplied with."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(5000, 64)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(self.words(tokens), self.words.weight)


def tied() -> tuple[torch.nn.Module, Any]:
    return Tied(), torch.randint(0, 5000, (1, 16))


def product() -> tuple[torch.nn.Module, Any]:
    class Live(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[0] @ x[1]

    return Live(), torch.randn(2, 512, 512)


@pytest.mark.parametrize("make", [convolutions, encoder, product, tied])
def test_memory_is_close_to_what_is_needed(make: Any) -> None:
    model, inputs = make()
    held, needed = memory(model.eval(), inputs)
    assert needed < held <= 1.1 * needed
