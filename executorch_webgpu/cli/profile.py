"""`profile`: where the GPU's time goes in a call, by kernel, op or module."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import InvalidInput, WebGPUError
from . import profile_page
from .inputs import add_input, inputs_of
from .measure import Launch, Measured, measure
from .program import find_method, read
from .record import module_of

_HEAD = ("launches", "us", "share", "GB/s", "GFLOP/s")


@dataclass(frozen=True)
class Row:
    """Launches of one kernel, op or module."""

    name: str
    launches: int
    microseconds: float
    share: float
    # None: not known of every launch.
    gigabytes_per_second: float | None
    gigaflops: float | None


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "profile", help="tell where the GPU's time goes in a call"
    )
    parser.add_argument("program", type=Path)
    add_input(parser)
    parser.add_argument(
        "--shapes", nargs="+", help="of random inputs, such as 1x128, one for each"
    )
    parser.add_argument("--runs", type=int, default=5, help="calls that are measured")
    parser.add_argument("--by", choices=("op", "kernel", "module"), default="kernel")
    parser.add_argument(
        "--etrecord", type=Path, help="of the program, which knows the model's modules"
    )
    parser.add_argument("--top", type=int, default=20, help="how many rows are printed")
    parser.add_argument("--trace", type=Path, help="write a trace for ui.perfetto.dev")
    parser.add_argument("--html", type=Path, help="write a page: timeline and treemap")
    parser.add_argument(
        "--alone",
        action="store_true",
        help="submit each launch alone, as adapters need that cannot time them",
    )
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    method = find_method(read(args.program), args.method)
    if args.runs < 1:
        raise InvalidInput(f"--runs: must be at least 1, got {args.runs}")
    if args.by == "module" and args.etrecord is None:
        raise WebGPUError(
            "--by module: must get --etrecord, got none; export with"
            " generate_etrecord=True and save what get_etrecord() returns"
        )
    module = None if args.etrecord is None else module_of(args.etrecord, method)
    inputs = inputs_of(method, args.input, args.seed, args.shapes)
    found = measure(args.program, method.name, inputs, args.runs, args.alone)
    if args.trace is not None:
        args.trace.write_text(json.dumps(trace(found, module)), encoding="utf-8")
    if args.html is not None:
        title = f"{args.program.name}: {method.name}"
        page = profile_page.page(title, found, module)
        args.html.write_text(page, encoding="utf-8")
    made = rows(found, _key(args.by, module))
    if args.json:
        print(json.dumps(_told(found, made, args.by, module), indent=1))
    else:
        print("\n".join(_lines(found, made, args.by, args.top)))


def _key(by: str, module: Callable[[Launch], str] | None) -> Callable[[Launch], str]:
    if by == "module":
        assert module is not None
        return module
    return (lambda each: each.op) if by == "op" else (lambda each: each.kernel)


def rows(found: Measured, key: Callable[[Launch], str]) -> list[Row]:
    """The largest share first."""
    groups: dict[str, list[Launch]] = {}
    for each in found.launches:
        groups.setdefault(key(each), []).append(each)
    whole = Counter((each.delegate, each.call) for each in found.launches)
    total = found.microseconds
    made = []
    for name, launches in groups.items():
        spent = sum(each.microseconds for each in launches)
        made.append(
            Row(
                name,
                len(launches),
                spent,
                spent / total if total else 0.0,
                _rate(_sum(each.moved for each in launches), spent),
                _rate(_flops(launches, whole), spent),
            )
        )
    return sorted(made, key=lambda row: -row.microseconds)


def _flops(launches: list[Launch], whole: Counter[tuple[int, int]]) -> int | None:
    """Of op calls all of whose launches are here: which launch does what is not
    known."""
    here = Counter((each.delegate, each.call) for each in launches)
    if any(count != whole[call] for call, count in here.items()):
        return None
    known = {(each.delegate, each.call): each.multiply_adds for each in launches}
    total = _sum(known.values())
    return None if total is None else 2 * total


def _sum(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def _rate(amount: int | None, microseconds: float) -> float | None:
    """In billions for each second."""
    return None if amount is None or not microseconds else amount / microseconds / 1e3


def trace(
    found: Measured, module: Callable[[Launch], str] | None
) -> dict[str, list[dict[str, Any]]]:
    """One run, as Chrome and Perfetto read it."""
    names = {"process_name": found.adapter, "thread_name": "launches"}
    made: list[dict[str, Any]] = [
        {"ph": "M", "name": kind, "pid": 1, "tid": 1, "args": {"name": name}}
        for kind, name in names.items()
    ]
    for each in found.launches:
        told = asdict(each)
        args = {key: told[key] for key in ("kernel", "grid", "moved", "microseconds")}
        if module is not None:
            args["module"] = module(each)
        made.append(
            {
                "ph": "X",
                "name": each.op,
                "cat": each.kernel,
                "pid": 1,
                "tid": 1,
                "ts": each.begin,
                "dur": each.shown,
                "args": args,
            }
        )
    return {"traceEvents": made}


def _told(
    found: Measured,
    made: list[Row],
    by: str,
    module: Callable[[Launch], str] | None,
) -> dict[str, Any]:
    launches = [asdict(each) for each in found.launches]
    if module is not None:
        for told, each in zip(launches, found.launches):
            told["module"] = module(each)
    return {
        "adapter": found.adapter,
        "how": found.how(),
        "timed_by": "host" if found.by_host else "gpu",
        "runs": found.runs,
        "microseconds": found.microseconds,
        "by": by,
        "rows": [asdict(row) for row in made],
        "launches": launches,
    }


def _lines(found: Measured, made: list[Row], by: str, top: int) -> Iterator[str]:
    yield f"{found.adapter}: {found.how()}"
    count = len(found.launches)
    yield (
        f"{count} launch{'es' * (count != 1)} take {found.microseconds:.0f} us,"
        f" the median of {found.runs} runs"
    )
    yield ""
    table: list[tuple[str, ...]] = [(by, *_HEAD)]
    for row in made[:top]:
        rates = [row.gigabytes_per_second, row.gigaflops]
        table.append(
            (
                row.name,
                str(row.launches),
                f"{row.microseconds:.1f}",
                f"{row.share:.1%}",
                *("-" if rate is None else f"{rate:.3g}" for rate in rates),
            )
        )
    widths = [max(map(len, column)) for column in zip(*table)]
    for name, *numbers in table:
        cells = [number.rjust(width) for number, width in zip(numbers, widths[1:])]
        yield "  ".join([name.ljust(widths[0]), *cells])
    if len(made) > top:
        yield f"and {len(made) - top} more; --top shows them"
