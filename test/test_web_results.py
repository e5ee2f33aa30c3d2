"""What the bench page saves becomes the table of docs/performance.md."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "scripts" / "web_results.py"
    spec = importlib.util.spec_from_file_location("web_results", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["web_results"] = module  # where its dataclasses look
    spec.loader.exec_module(module)
    return module


def _engine(samples: list[float], first: float, **more: Any) -> dict[str, Any]:
    heap = {"heapBefore": 5e6, "heapPeak": 25e6}
    return {"samples": samples, "firstMs": first, **heap, **more}


def _case(name: str, **engines: Any) -> dict[str, Any]:
    inputs = [{"type": "float32", "dims": [1, 3, 8]}]
    return {
        "name": name,
        "title": name,
        "inputs": inputs,
        "difference": 2e-6,
        "engines": engines,
    }


def _results() -> dict[str, Any]:
    nodes = {"WebGpuExecutionProvider": 40, "CPUExecutionProvider": 2}
    return {
        "kind": "executorch-webgpu-bench",
        "format": 1,
        "date": "2026-11-18T10:00:00.000Z",
        "browser": {
            "userAgent": "Mozilla",
            "brands": [
                {"brand": "Not(A:Brand", "version": "8"},
                {"brand": "Chromium", "version": "156"},
            ],
            "platform": "Linux",
        },
        "adapter": {"vendor": "acme", "architecture": "gen-1", "description": "One"},
        "runtimes": {
            "ours": {"version": "0.1.0", "files": [{"gzip": 40_000}]},
            "ort": {
                "version": "1.30.0",
                "files": [{"gzip": 100_000}, {"gzip": 3_900_000}],
            },
        },
        "settings": {"rounds": 3, "sizes": "small", "tolerance": 0.01},
        "cases": [
            _case(
                "net",
                ours=_engine([11, 10, 9], 100),
                ort=_engine([39, 40, 41], 300, nodes=nodes),
            ),
            _case("mlp", ours=_engine([10], 100), ort=_engine([90], 2700)),
            _case(
                "wrong",
                ours=_engine([1], 1),
                ort=_engine([5], 5, failed="must be near, got 9%"),
            ),
            _case("alone", ours=_engine([7], 8)),
        ],
    }


def _write(folder: Path, content: Any, name: str = "a.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def test_ratios_are_of_medians_and_means_geometric(
    script: ModuleType, tmp_path: Path
) -> None:
    run = script.read(_write(tmp_path, _results()))
    lines = script.content([run]).splitlines()
    assert lines[2] == (
        "| acme gen-1 (One) | Chromium 156, Linux | 2026-11-18 | 2 | **6.00** | 4.00"
        " | 9.00 |"
    )
    times = "10.0 ±5% | 40.0 ±1% | 4.00 | 100 | 300 | 3.00"
    assert f"| net, 1x3x8 | {times} | 25.0 | 2e-06 |" in lines
    assert any("40.0 and 4,000 KB: 1/100." in line for line in lines)


def test_a_peer_that_failed_has_no_time(script: ModuleType, tmp_path: Path) -> None:
    text = script.content([script.read(_write(tmp_path, _results()))])
    assert "| wrong, 1x3x8 | 1.00 ±0% | - | - | 1.00 | - | - | 25.0 | 2e-06 |" in text
    assert "- wrong, 1x3x8: onnxruntime-web: must be near, got 9%" in text
    assert "- net, 1x3x8: onnxruntime-web ran 2 nodes on the CPU" in text
    assert "- alone, 1x3x8: onnxruntime-web: was not run" in text


def test_several_files_are_rows_of_one_table(
    script: ModuleType, tmp_path: Path
) -> None:
    other = _results()
    other["adapter"] = {"vendor": "other"}
    files = [
        _write(tmp_path, _results()),
        _write(tmp_path, other, "b.json"),
    ]
    lines = script.content([script.read(file) for file in files]).splitlines()
    assert lines[2].startswith("| acme gen-1 (One) |")
    assert lines[3].startswith("| other |")


@pytest.mark.parametrize("wrong", [{"kind": "else"}, {"format": 2}])
def test_other_files_are_refused(
    script: ModuleType, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="must be executorch-webgpu-bench of format 1"):
        script.read(_write(tmp_path, {**_results(), **wrong}))


def test_the_page_has_the_table_of_the_files_in_docs(script: ModuleType) -> None:
    assert list(script.RESULTS.glob("*.json"))
    assert script.main(["--check"]) == 0, "run scripts/web_results.py --publish"
