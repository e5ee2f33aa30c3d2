"""Tokens per second of SmolLM2-135M: this backend beside its peers, in one run.

    python -m benchmarks llm [--rounds N] [--processes N] [--publish]

Prefill is one call with 64 tokens, decode one with a token at position 128 of a
cache for 256. Ours runs the published 4-bit weights, and the same weights as
float32; the peers have no form of these 4-bit weights and run float32. With
--publish the table goes into docs/llm.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from . import cases, peers, report
from .measure import Row, measure

PREFILL = 64
# Columns of the table: title, suffix of the cases' names, peer.
ENGINES = (
    ("executorch-webgpu, 4-bit weights", "", peers.OURS),
    ("executorch-webgpu, float32", "_float", peers.OURS),
    ("ONNX Runtime WebGPU, float32", "", "ort-webgpu"),
    ("XNNPACK delegate (CPU), float32", "", "xnnpack"),
)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks llm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5, help="per process")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("build/benchmarks"))
    parser.add_argument("--reuse", action="store_true", help="keep the peers' exports")
    parser.add_argument("--publish", action="store_true", help="write into docs/llm.md")
    options = parser.parse_args(argv)
    rows = {}
    for ending in ("", "_float"):
        names = [peer for _, end, peer in ENGINES if end == ending]
        for kind in ("prefill", "step"):
            case = cases.find(f"smollm{ending}_{kind}")
            print(f"{case.title} ...", file=sys.stderr, flush=True)
            folder = options.output / case.name
            rows[case.name] = measure(
                case, names, options.rounds, options.processes, folder, options.reuse
            )
    stored = {name: row.as_dict() for name, row in rows.items()}
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "llm.json").write_text(json.dumps(stored))
    content = table(rows)
    print(content)
    if options.publish:
        report.publish(peers.ROOT / "docs" / "llm.md", "tokens", content)
    return 0


def table(rows: dict[str, Row]) -> str:
    """Tokens per second of wall time, and per second of CPU time of all threads."""
    lines = []
    for title, ending, peer in ENGINES:
        line = [title]
        for clock in (report.wall, report.cpu):
            for kind, tokens in (("prefill", PREFILL), ("step", 1)):
                cell = rows[f"smollm{ending}_{kind}"].cells[peer]
                seconds = clock(cell)
                rate = "failed" if cell.failed else tokens / report.median(seconds)
                line.append(rate if isinstance(rate, str) else report.number(rate))
        lines.append(line)
    header = ["tokens/s", "prefill", "decode", "prefill, CPU time", "decode, CPU time"]
    text = report.table(header, lines)
    ours = rows["smollm_step"].cells[peers.OURS]
    if not ours.failed:
        share = 1 - report.median(ours.busy) / report.median(ours.wall)
        count = rows["smollm_step"].facts["dispatches"]
        text += (
            f"\n\nOf a token's wall time with 4-bit weights, {share:.1%} is the host's:"
            f" all but the time from the first submit of the {count} dispatches to the"
            " results."
        )
    failed = report.failures(list(rows.values()))
    return f"{text}\n{failed}" if failed else text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
