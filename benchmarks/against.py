"""Another checkout of the project beside this one: CPU time of cases, in turns.

    python -m benchmarks against FOLDER [--cases ...] [--turns N] [--publish]

FOLDER is a clone at another commit, built in a .venv of its own. Each checkout exports
the cases itself. In every turn both start a process, load the case and run it, round
by round one after the other; who begins changes with the turn. Times are of the CPU,
of all threads, so that other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import cases, peers, report
from .measure import Failed, Process, prepare, python_of

OTHER, THIS = "other", "this"


@dataclass
class Compared:
    """One case: CPU seconds by checkout, the median of each turn."""

    title: str
    runs: dict[str, list[float]] = field(default_factory=lambda: {OTHER: [], THIS: []})
    first: dict[str, list[float]] = field(default_factory=lambda: {OTHER: [], THIS: []})
    failed: str = ""

    def ratio(self) -> float:
        """This over the other: below 1 this one is faster."""
        return report.median(self.runs[THIS]) / report.median(self.runs[OTHER])

    def turns(self) -> list[float]:
        return [a / b for a, b in zip(self.runs[THIS], self.runs[OTHER], strict=True)]

    def first_ratio(self) -> float:
        return report.median(self.first[THIS]) / report.median(self.first[OTHER])


def main(argv: Sequence[str]) -> int:
    options = _parse(argv)
    roots = {OTHER: options.folder.resolve(), THIS: peers.ROOT}
    if not Path(python_of(roots[OTHER])).exists():
        raise SystemExit(
            f"against: {options.folder} must be a checkout with a .venv, got none there"
        )
    rows = []
    for name in options.cases or [case.name for case in cases.CASES]:
        case = cases.find(name)
        print(f"{case.title} ...", file=sys.stderr, flush=True)
        rows.append(_compare(case, roots, options))
        print(_line(rows[-1]), file=sys.stderr, flush=True)
        stored = json.dumps([asdict(row) for row in rows], indent=1)
        (options.output / "against.json").write_text(stored)
    text = section(rows, _commit(roots[OTHER]))
    print(text)
    if options.publish:
        report.publish(peers.ROOT / "docs" / "performance.md", "against", text)
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks against",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--cases", nargs="+", metavar="CASE")
    parser.add_argument("--turns", type=int, default=5, help="processes of each")
    parser.add_argument("--rounds", type=int, default=5, help="per process")
    parser.add_argument("--output", type=Path, default=Path("build/benchmarks/against"))
    parser.add_argument(
        "--reuse", action="store_true", help="keep what was exported into the output"
    )
    parser.add_argument(
        "--publish", action="store_true", help="write into docs/performance.md"
    )
    return parser.parse_args(argv)


def _compare(
    case: cases.Case, roots: dict[str, Path], options: argparse.Namespace
) -> Compared:
    row = Compared(case.title)
    folders = {who: options.output / case.name / who for who in roots}
    try:
        for who, folder in folders.items():
            program = folder / "webgpu.pte"
            if not options.reuse:
                program.unlink(missing_ok=True)
            if not program.exists():
                facts = prepare(case, [peers.OURS], folder, False, roots[who])
                # Accounting for a program may have failed, which is not needed here.
                if not program.exists():
                    raise Failed(f"{who}: {facts['failed'].get(peers.OURS)}")
        for turn in range(options.turns):
            order = [OTHER, THIS] if turn % 2 == 0 else [THIS, OTHER]
            _turn(row, {who: (folders[who], roots[who]) for who in order}, options)
    except Failed as error:
        row.failed = str(error)
    return row


def _turn(
    row: Compared, places: dict[str, tuple[Path, Path]], options: argparse.Namespace
) -> None:
    running = {
        who: Process(peers.OURS, folder, root) for who, (folder, root) in places.items()
    }
    found: dict[str, list[float]] = {who: [] for who in running}
    try:
        # Imports at the same time, everything that is measured one by one.
        for process in running.values():
            process.send("setup")
        for process in running.values():
            process.answer()
        for who, process in running.items():
            answer = process.ask("load")
            row.first[who].append(answer["first"]["cpu"])
            if not answer["error"] < 1e-2:
                raise Failed(f"{who}: off from eager by {answer['error']:.1e}")
        for _ in range(options.rounds):
            for who, process in running.items():
                found[who].append(process.ask("run")["cpu"])
    finally:
        for process in running.values():
            process.close()
    for who, seconds in found.items():
        row.runs[who].append(report.median(seconds))


def _commit(root: Path) -> str:
    command = ["git", "-C", str(root), "log", "-1", "--format=%h of %cs"]
    return subprocess.check_output(command, text=True).strip()


def _line(row: Compared) -> str:
    if row.failed:
        return f"  failed: {row.failed}"
    return f"  {row.ratio():.3f}, by turns {_range(row.turns())}"


def _range(ratios: Sequence[float]) -> str:
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def section(rows: Sequence[Compared], other: str) -> str:
    """The table, with who was compared and when."""
    made = [row for row in rows if not row.failed]
    body = [
        [
            row.title,
            report.number(1000 * report.median(row.runs[OTHER])),
            report.number(1000 * report.median(row.runs[THIS])),
            f"{row.ratio():.2f}",
            _range(row.turns()),
            f"{row.first_ratio():.2f}",
        ]
        for row in made
    ]
    means = [
        report.geometric_mean([ratio(row) for row in made])
        for ratio in (Compared.ratio, Compared.first_ratio)
    ]
    body.append(
        ["**geometric mean**", "", "", f"**{means[0]:.2f}**", "", f"**{means[1]:.2f}**"]
    )
    header = ["case", "CPU ms before", "now", "ratio", "by turns", "first run, ratio"]
    failed = "".join(f"\n- {row.title}: {row.failed}" for row in rows if row.failed)
    return (
        f"Measured on {datetime.date.today()} with `python -m benchmarks against`, with"
        f" commit {other}.\n\n{report.table(header, body)}{failed}"
    )
