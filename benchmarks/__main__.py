"""The benchmark: this backend beside its peers, in one run.

    python -m benchmarks [--cases ...] [--peers ...] [--rounds N] [--output FOLDER]
    python -m benchmarks llm         tokens/s of SmolLM2-135M
    python -m benchmarks scaling     time against batch, length and layers
    python -m benchmarks tuned       what autotune gains
    python -m benchmarks kernels     GFLOP/s of every kernel form
    python -m benchmarks profile     where the time of one program goes
    python -m benchmarks replay      the floor of one dispatch, and cost per dispatch
    python -m benchmarks isa         the machine code of kernels on Radeons
    python -m benchmarks against     another checkout of the project, in turns
    python -m benchmarks portable    what plans in the file cost and save
    python -m benchmarks lowering    what lowering costs, beside XNNPACK's

Speed, scaling and tuned write JSON and Markdown into the output folder and, with
--publish, into docs/performance.md; the README's table and chart are made from there
(scripts/readme_tables.py).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from . import against, cases, llm, lowering, peers, portable, report
from .isa import command as isa
from .measure import Row, measure


def main(argv: Sequence[str]) -> int:
    if argv and argv[0] == "llm":
        return llm.main(argv[1:])
    if argv and argv[0] == "isa":
        return isa.main(argv[1:])
    if argv and argv[0] == "against":
        return against.main(argv[1:])
    if argv and argv[0] == "portable":
        return portable.main(argv[1:])
    if argv and argv[0] == "lowering":
        return lowering.main(argv[1:])
    if argv and argv[0] in ("kernels", "profile", "replay"):
        sys.argv = list(argv)
        runpy.run_module(f"benchmarks.{argv[0]}", run_name="__main__")
        return 0
    options = _parse(argv)
    known = cases.SCALING if options.what == "scaling" else cases.CASES
    chosen = [cases.find(name) for name in options.cases or [c.name for c in known]]
    fixed = {"scaling": [peers.OURS], "tuned": [peers.OURS, peers.TUNED]}
    names = fixed.get(options.what, [peers.find(name).name for name in options.peers])
    folder = options.output
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / f"{options.what}.json"
    rows = _stored(results, [case.name for case in chosen]) if options.resume else []
    for case in chosen:
        if case.name in [row.name for row in rows]:
            continue
        print(f"{case.title} ...", file=sys.stderr, flush=True)
        row = measure(
            case,
            names,
            options.rounds,
            options.processes,
            folder / case.name,
            options.reuse,
        )
        rows.append(row)
        _show(row)
        results.write_text(json.dumps([made.as_dict() for made in rows]))
    _write(rows, options.what, folder, options.publish)
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "what", nargs="?", default="speed", choices=["speed", "scaling", "tuned"]
    )
    parser.add_argument("--cases", nargs="+", metavar="CASE")
    everyone = [peer.name for peer in peers.PEERS]
    parser.add_argument("--peers", nargs="+", metavar="PEER", default=everyone)
    parser.add_argument("--rounds", type=int, default=5, help="per process")
    parser.add_argument(
        "--processes", type=int, default=3, help="of each peer, one after the other"
    )
    parser.add_argument("--output", type=Path, default=Path("build/benchmarks"))
    parser.add_argument(
        "--reuse", action="store_true", help="keep the peers' exports in the output"
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep the cases already measured"
    )
    parser.add_argument(
        "--publish", action="store_true", help="write into docs/performance.md"
    )
    return parser.parse_args(argv)


def _stored(path: Path, names: Sequence[str]) -> list[Row]:
    """The rows of an earlier run, as far as they are asked for."""
    if not path.exists():
        return []
    rows = [Row.from_dict(row) for row in json.loads(path.read_text())]
    return [row for row in rows if row.name in names]


def _show(row: Row) -> None:
    for name, cell in row.cells.items():
        times = f"failed: {cell.failed}"
        if not cell.failed:
            times = (
                f"{report.time_cell(cell, report.wall):>16} ms"
                f"{report.time_cell(cell, report.cpu):>16} ms CPU"
                f"{report.number(report.median(cell.first)):>8} s first,"
                f" {report.number(report.median(cell.first_cpu))} s CPU"
            )
        print(f"  {name:<11}{times}", file=sys.stderr, flush=True)


def _run(rows: Sequence[Row]) -> str:
    """When, how and on what it was measured."""
    adapters = {row.facts["adapter"] for row in rows if "adapter" in row.facts}
    return (
        f"Measured on {datetime.date.today()} with `python -m benchmarks`, on"
        f" {' and '.join(sorted(adapters)) or 'no adapter'}, {os.cpu_count()} cores,"
        f" {platform.system()} {platform.machine()}"
    )


def _write(rows: Sequence[Row], what: str, folder: Path, publish: bool) -> None:
    if what == "scaling":
        content = report.scaling_table(rows)
    elif what == "tuned":
        content = report.tuned_table(rows)
    else:
        content = report.section(rows, _run(rows))
    (folder / f"{what}.md").write_text(content + "\n")
    print(content)
    if publish:
        path = peers.ROOT / "docs" / "performance.md"
        report.publish(path, what, content)
        print(f"wrote {path}; now run scripts/readme_tables.py", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
