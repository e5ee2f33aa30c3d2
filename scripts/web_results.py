"""Reads what the bench page saves into the table of docs/performance.md.

    python scripts/web_results.py [FILE.json ...]           # prints the table
    python scripts/web_results.py --publish                 # docs/web-results to docs
    python scripts/web_results.py --check

A file that somebody sends in goes to docs/web-results. Every number of the table is
made from samples; a file that is not of the page, or of another format, is an error.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

# ruff: noqa: E402, found by the path above
from benchmarks import report

RESULTS = ROOT / "docs" / "web-results"
PAGE = ROOT / "docs" / "performance.md"
KIND, FORMAT = "executorch-webgpu-bench", 1
WEBGPU = "WebGpuExecutionProvider"
ENGINES = {"ours": "executorch-webgpu", "ort": "onnxruntime-web"}


@dataclass(frozen=True)
class Engine:
    """A model in one engine; without samples it did not run, or not rightly."""

    samples: tuple[float, ...]  # ms
    first: float  # ms
    heap: float  # bytes at the peak; not a number where the browser does not say
    failed: str
    elsewhere: int  # nodes that were not on the GPU

    @property
    def ran(self) -> bool:
        return bool(self.samples) and not self.failed


@dataclass(frozen=True)
class Case:
    title: str
    ours: Engine
    ort: Engine
    difference: float

    @property
    def both(self) -> bool:
        return self.ours.ran and self.ort.ran

    @property
    def ratio(self) -> float:
        return report.median(self.ort.samples) / report.median(self.ours.samples)

    @property
    def first_ratio(self) -> float:
        return self.ort.first / self.ours.first


@dataclass(frozen=True)
class Run:
    """One file."""

    gpu: str
    browser: str
    day: str
    rounds: int
    sizes: str
    runtimes: dict[str, int]  # bytes, compressed
    versions: dict[str, str]
    cases: tuple[Case, ...]


def read(path: Path) -> Run:
    content = json.loads(path.read_text(encoding="utf-8"))
    found = (content.get("kind"), content.get("format"))
    if found != (KIND, FORMAT):
        raise ValueError(f"{path}: must be {KIND} of format {FORMAT}, got {found}")
    runtimes = content["runtimes"]
    return Run(
        gpu=_gpu(content["adapter"]),
        browser=_browser(content["browser"]),
        day=content["date"][:10],
        rounds=content["settings"]["rounds"],
        sizes=content["settings"]["sizes"],
        runtimes={n: sum(f["gzip"] for f in runtimes[n]["files"]) for n in ENGINES},
        versions={name: runtimes[name]["version"] for name in ENGINES},
        cases=tuple(_case(case) for case in content["cases"]),
    )


def _gpu(adapter: dict[str, Any]) -> str:
    names = (adapter.get(n) for n in ("vendor", "architecture", "device"))
    parts = list(dict.fromkeys(name for name in names if name))
    described = adapter.get("description")
    name = " ".join(parts) or "a GPU"
    return f"{name} ({described})" if described else name


def _browser(browser: dict[str, Any]) -> str:
    # Browsers name a brand that does not exist, so that nobody relies on the list.
    brands = [b for b in browser.get("brands", []) if "Not" not in b["brand"]]
    if brands:
        shown = max(brands, key=lambda brand: len(brand["brand"]))
        return f"{shown['brand']} {shown['version']}, {browser.get('platform', '')}"
    return str(browser["userAgent"])


def _case(case: dict[str, Any]) -> Case:
    dims = "x".join(str(size) for size in case["inputs"][0]["dims"])
    difference = case["difference"]
    return Case(
        title=f"{case['title']}, {dims}",
        ours=_engine(case["engines"].get("ours")),
        ort=_engine(case["engines"].get("ort")),
        difference=math.nan if difference is None else difference,
    )


def _engine(engine: dict[str, Any] | None) -> Engine:
    if engine is None:
        return Engine((), math.nan, math.nan, "was not run", 0)
    nodes = engine.get("nodes", {})
    return Engine(
        samples=tuple(engine["samples"]),
        first=engine.get("firstMs", math.nan),
        heap=engine.get("heapPeak", math.nan),
        failed=engine.get("failed", ""),
        elsewhere=sum(count for name, count in nodes.items() if name != WEBGPU),
    )


def summary(runs: Sequence[Run]) -> str:
    """One row for each GPU."""
    header = ["GPU", "browser", "day", "models", "time per run", "slowest", "first"]
    rows = []
    for run in runs:
        both = [case for case in run.cases if case.both]
        ratios = [case.ratio for case in both]
        rows.append(
            [
                run.gpu,
                run.browser,
                run.day,
                str(len(both)),
                f"**{report.number(report.geometric_mean(ratios))}**",
                report.number(min(ratios, default=math.nan)),
                report.number(report.geometric_mean([c.first_ratio for c in both])),
            ]
        )
    return report.table(header, rows)


def details(run: Run) -> str:
    """Every model on one GPU."""
    header = [
        f"{run.gpu}, ms",
        *ENGINES.values(),
        "ratio",
        *(f"first, {name}" for name in ENGINES.values()),
        "ratio",
        "heap, MB",
        "difference",
    ]
    rows = []
    for case in run.cases:
        ours, ort = case.ours, case.ort
        rows.append(
            [
                case.title,
                _time(ours),
                _time(ort),
                report.number(case.ratio) if case.both else "-",
                _first(ours),
                _first(ort),
                report.number(case.first_ratio) if case.both else "-",
                report.number(ours.heap / 1e6) if ours.ran else "-",
                "-" if math.isnan(case.difference) else f"{case.difference:.0e}",
            ]
        )
    text = report.table(header, rows)
    return "\n\n".join([text, *_notes(run)])


def _time(engine: Engine) -> str:
    if not engine.ran:
        return "-"
    middle, spread = report.median(engine.samples), report.spread(engine.samples)
    return f"{report.number(middle)} ±{100 * spread:.0f}%"


def _first(engine: Engine) -> str:
    return report.number(engine.first) if engine.ran else "-"


def _notes(run: Run) -> list[str]:
    notes = []
    for case in run.cases:
        for name, engine in (("ours", case.ours), ("ort", case.ort)):
            if engine.failed:
                notes.append(f"- {case.title}: {ENGINES[name]}: {engine.failed}")
            elif engine.elsewhere:
                count = engine.elsewhere
                notes.append(
                    f"- {case.title}: {ENGINES[name]} ran {count} nodes on the CPU"
                )
    return ["\n".join(notes)] if notes else []


def content(runs: Sequence[Run]) -> str:
    """What docs/performance.md has between its markers."""
    parts = [summary(runs)]
    for run in runs:
        ours, ort = (run.runtimes[name] for name in ENGINES)
        versions = " and ".join(f"{ENGINES[n]} {run.versions[n]}" for n in ENGINES)
        parts.append(
            f"{run.gpu}, {run.browser}: {versions}; {run.rounds} rounds, {run.sizes}"
            f" sizes, measured on {run.day}. Compressed, the runtimes are"
            f" {ours / 1e3:.1f} and {ort / 1e3:,.0f} KB: 1/{ort / ours:.0f}."
        )
        parts.append(details(run))
    return "\n\n".join(parts)


def written() -> str:
    """The page with the table of all files in docs/web-results."""
    runs = [read(path) for path in sorted(RESULTS.glob("*.json"))]
    page = PAGE.read_text(encoding="utf-8")
    return report.replaced(page, "browser", content(runs))


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(argv)
    if options.publish or options.check:
        page = written()
        if page == PAGE.read_text(encoding="utf-8"):
            return 0
        if options.check:
            print(f"{PAGE.relative_to(ROOT)} is stale; run scripts/web_results.py")
            return 1
        PAGE.write_text(page, encoding="utf-8")
        return 0
    files = options.files or sorted(RESULTS.glob("*.json"))
    print(content([read(path) for path in files]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
