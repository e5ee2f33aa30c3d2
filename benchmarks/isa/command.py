"""What our kernels and ONNX Runtime WebGPU's become on Radeons, without one.

    python -m benchmarks isa [--cases ...] [--models] [--targets ...] [--publish]

Both sides run unchanged on Mesa's null devices, which compile and run nothing; a layer
keeps what the compiler made. Registers, instructions and how often each runs are
counted; microseconds are estimated from them with assumed clocks (targets.py). Needs
RADV, a C compiler and the headers of Vulkan, and for ONNX Runtime `make bench` once.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .. import peers
from ..report import publish
from . import capture, cases, report, results, targets, theirs, tools

OURS, THEIRS = "benchmarks.isa.ours", "benchmarks.isa.theirs"


def main(argv: Sequence[str]) -> int:
    options = _parse(argv)
    try:
        tools.check()
        rows = _measure(options)
    except tools.Missing as error:
        print(error, file=sys.stderr)
        return 1
    text = report.section(rows, _run(rows))
    (options.output / "isa.md").write_text(text + "\n")
    numbers = json.dumps(results.as_json(rows), indent=1)
    (options.output / "isa.json").write_text(numbers)
    print(text)
    if options.dispatches:
        print(report.dispatches(rows, options.dispatches))
    if options.publish:
        publish(peers.ROOT / "docs" / "performance.md", "isa", text)
        (peers.ROOT / "docs" / "isa.svg").write_text(report.chart(rows))
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks isa",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--cases",
        nargs="+",
        metavar="CASE",
        default=["seen"],
        help=f"names, or of them all: {', '.join(cases.GROUPS)}",
    )
    parser.add_argument("--models", action="store_true", help="whole models, too")
    parser.add_argument(
        "--dispatches",
        type=int,
        metavar="COUNT",
        default=0,
        help="print so many of each side's slowest dispatches, too",
    )
    parser.add_argument(
        "--tint", action="store_true", help="ours by the compiler of browsers, too"
    )
    everyone = [target.name for target in targets.TARGETS]
    parser.add_argument("--targets", nargs="+", metavar="TARGET", default=everyone)
    parser.add_argument("--output", type=Path, default=Path("build/benchmarks/isa"))
    parser.add_argument(
        "--peers",
        type=Path,
        default=peers.PACKAGES,
        help="where ONNX Runtime and Dawn are",
    )
    parser.add_argument(
        "--reuse",
        action="store_true",
        help="keep exported programs and ONNX Runtime's kernels in the output",
    )
    parser.add_argument(
        "--publish",
        action="store_true",
        help="write into docs/performance.md and docs/isa.svg",
    )
    return parser.parse_args(argv)


def _measure(options: argparse.Namespace) -> list[results.Row]:
    chosen = cases.expand([*options.cases, *(["models"] if options.models else [])])
    options.cases = [case.name for case in chosen]
    folder: Path = options.output
    layer, graphs = folder / "layer", folder / "graphs"
    tools.build_layer(layer)
    graphs.mkdir(parents=True, exist_ok=True)
    has_theirs = (options.peers / "onnxruntime").exists()
    for case in chosen:
        if case.is_model:
            _prepare(graphs / case.name, has_theirs, options)
    _export(graphs, options.cases, options.reuse)
    if not has_theirs:
        print(
            f"isa: ONNX Runtime must be in {options.peers}, got nothing there; run"
            " `scripts/setup.sh bench`. Only ours is looked at.",
            file=sys.stderr,
        )
    if options.tint and not (options.peers / "pydawn").exists():
        raise tools.Missing(
            f"isa: Tint must be in {options.peers}, got no dawn-python there; run"
            " `scripts/setup.sh bench`, or leave out --tint"
        )
    rows = []
    for target in map(targets.find, options.targets):
        print(f"{target.name} ...", file=sys.stderr, flush=True)
        ours = _ours("capture", target, layer, graphs, options)
        tint = _ours("tint", target, layer, graphs, options) if options.tint else None
        other = _theirs(target, layer, options) if has_theirs else None
        for case in chosen:
            side = None
            if other:
                measurer, failed = other
                side = measurer.side(case, failed.get(case.name, ""))
            browser = tint.side(case) if tint else None
            rows.append(results.Row(case, target, ours.side(case), side, browser))
    return rows


def _prepare(folder: Path, has_theirs: bool, options: argparse.Namespace) -> None:
    """A model as both sides load it."""
    if options.reuse and (folder / "facts.json").exists():
        return
    sides = [peers.OURS, *(["ort-webgpu"] if has_theirs else [])]
    command = [sys.executable, "-m", "benchmarks.prepare", folder.name, str(folder)]
    paths = [os.environ.get("PYTHONPATH", ""), str(options.peers)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    subprocess.run([*command, *sides], check=True, env=environment)


def _export(graphs: Path, names: Sequence[str], is_reused: bool) -> None:
    """In a process of its own: torch is large, and only this needs it."""
    wanted = [
        name
        for name in names
        if not (is_reused and (graphs / f"{name}.graph").exists())
    ]
    if wanted:
        command = [sys.executable, "-m", OURS, "export", str(graphs), *wanted]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def _ours(
    how: str,
    target: targets.Target,
    layer: Path,
    graphs: Path,
    options: argparse.Namespace,
) -> results.Measurer:
    """By naga (capture) or by Tint (tint), whose plans are those of the former."""
    output = options.output / f"{'ours' if how == 'capture' else how}_{target.name}"
    packages = [str(options.peers)] if how == "tint" else []
    arguments = [how, str(graphs), *packages, *options.cases]
    capture.run(OURS, arguments, target, layer, output)
    return results.Measurer(capture.Capture(output, target))


def _theirs(
    target: targets.Target, layer: Path, options: argparse.Namespace
) -> tuple[results.Measurer, dict[str, str]]:
    """With the reasons of those that failed."""
    output = options.output / f"theirs_{target.name}"
    if not (options.reuse and _holds(output, options.cases)):
        arguments = [str(options.peers), str(options.output / "graphs"), *options.cases]
        printed = capture.run(THEIRS, arguments, target, layer, output)
        names = theirs.names(printed)
        named = [replace(one, label=names[one.kernel]) for one in capture.read(output)]
        capture.write(output, named)
    failed: dict[str, str] = json.loads((output / "failed.json").read_text())
    return results.Measurer(capture.Capture(output, target)), failed


def _holds(output: Path, names: Sequence[str]) -> bool:
    """Whether an earlier run has captured, or failed at, all of these."""
    if not (output / "failed.json").exists():
        return False
    failed = json.loads((output / "failed.json").read_text())
    return set(names) <= {*failed, *(one.case for one in capture.read(output))}


def _run(rows: Sequence[results.Row]) -> str:
    return (
        f"Compiled on {datetime.date.today()} with `python -m benchmarks isa`, by"
        f" Mesa's RADV, for {', '.join(dict.fromkeys(r.target.name for r in rows))}."
    )
