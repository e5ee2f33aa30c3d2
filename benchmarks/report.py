"""Rows in, Markdown out; nothing is measured here.

Times are medians over all rounds. A ratio is a peer's median divided by ours in
the same run: above 1 we are faster. Means of ratios are geometric.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from executorch_webgpu.cli.markdown import number, table

from .measure import Cell, Row
from .peers import OURS, TUNED, find

GPU_PEERS = ("ort-webgpu", "tinygrad")


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


def spread(values: Sequence[float]) -> float:
    """Half the distance between the quartiles, relative to the median."""
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / 2 / middle


def geometric_mean(values: Sequence[float]) -> float:
    known = [value for value in values if value == value]
    if not known:
        return math.nan
    return math.exp(sum(map(math.log, known)) / len(known))


def ratio(row: Row, peer: str, clock: Callable[[Cell], list[float]]) -> float:
    """How many times longer a peer takes than we do; NaN if either failed."""
    ours, theirs = row.cells.get(OURS), row.cells.get(peer)
    if not ours or not theirs or ours.failed or theirs.failed:
        return math.nan
    return median(clock(theirs)) / median(clock(ours))


def wall(cell: Cell) -> list[float]:
    return cell.wall


def cpu(cell: Cell) -> list[float]:
    return cell.cpu


def time_cell(cell: Cell, clock: Callable[[Cell], list[float]]) -> str:
    if cell.failed:
        return "failed"
    values = clock(cell)
    if not values:
        return "-"  # was not asked to
    return f"{number(1000 * median(values))} ±{100 * spread(values):.0f}%"


def times_table(rows: Sequence[Row], clock: Callable[[Cell], list[float]]) -> str:
    names = list(rows[0].cells)
    return table(
        ["case", *(find(name).title for name in names)],
        [
            [row.title, *(time_cell(row.cells.get(n, Cell()), clock) for n in names)]
            for row in rows
        ],
    )


def ratios_table(rows: Sequence[Row]) -> str:
    """Ratios by wall and CPU time to the peers on the same driver, wall to others."""
    names = [name for name in rows[0].cells if name != OURS]
    header, columns = ["case"], []
    for name in names:
        clocks = [("", wall), (", CPU time", cpu)]
        for suffix, clock in clocks if name in GPU_PEERS else clocks[:1]:
            header.append(find(name).title + suffix)
            columns.append([ratio(row, name, clock) for row in rows])
    body = [
        [row.title, *(f"{number(column[index])}" for column in columns)]
        for index, row in enumerate(rows)
    ]
    means = [f"**{number(geometric_mean(column))}**" for column in columns]
    return table(header, [*body, ["**geometric mean**", *means]])


def program_table(rows: Sequence[Row]) -> str:
    """What our program is made of, and how long the first run takes everywhere."""
    firsts = [name for name in (OURS, *GPU_PEERS) if name in rows[0].cells]
    header = ["case", "dispatches", "kernels", "GPU MB", "needed MB", "ratio"]
    header += [f"first run, s: {find(name).title}" for name in firsts]
    body = []
    for row in rows:
        held = row.facts.get("gpu_bytes", math.nan)
        needed = row.facts.get("needed_bytes", math.nan)
        body.append(
            [
                row.title,
                str(row.facts.get("dispatches", "-")),
                str(row.facts.get("kernels", "-")),
                number(held / 1e6),
                number(needed / 1e6),
                number(held / needed),
                *(number(median(row.cells.get(n, Cell()).first)) for n in firsts),
            ]
        )
    return table(header, body)


def failures(rows: Sequence[Row]) -> str:
    lines = [
        f"- {row.title}, {find(name).title}: {cell.failed}"
        for row in rows
        for name, cell in row.cells.items()
        if cell.failed
    ]
    return "\n".join(["Failed:", "", *lines]) if lines else ""


def section(rows: Sequence[Row], run: str) -> str:
    """What docs/performance.md shows of a run, whose day and machine `run` tells."""
    if not rows:
        return ""
    sections = [
        f"{run}.",
        "Times longer than ours, each from medians of the same run (above 1 we are"
        " faster); by wall time, and for the peers on the same driver by CPU time of"
        " all threads too:",
        ratios_table(rows),
        "Milliseconds per run, wall time, median and half the distance between the"
        " quartiles:",
        times_table(rows, wall),
        "Our programs, and the time to the first result (load, compile all kernels"
        " with no cache on disk, run; without imports). Needed are weights, inputs,"
        " outputs and the largest set of intermediate results alive at once:",
        program_table(rows),
        failures(rows),
    ]
    return "\n\n".join(text for text in sections if text)


def scaling_table(rows: Sequence[Row]) -> str:
    body = []
    for index, row in enumerate(rows):
        cell = row.cells[OURS]
        size = int(row.name.rsplit("_", 1)[1])
        family = row.name.rsplit("_", 1)[0]
        before = rows[index - 1] if index else None
        growth = "-", "-"
        if before is not None and before.name.startswith(family):
            last = int(before.name.rsplit("_", 1)[1])
            grown = median(cell.cpu) / median(before.cells[OURS].cpu)
            growth = f"x{number(size / last)}", f"x{number(grown)}"
        body.append(
            [
                row.title,
                time_cell(cell, wall),
                time_cell(cell, cpu),
                str(row.facts.get("dispatches", "-")),
                *growth,
            ]
        )
    header = ["case", "ms", "CPU ms", "dispatches", "size grows", "CPU time grows"]
    return table(header, body)


def tuned_table(rows: Sequence[Row]) -> str:
    """Autotuned beside the default choice of kernels; above 1 measuring helps."""
    body = []
    for row in rows:
        plain, tuned = row.cells[OURS], row.cells[TUNED]
        if plain.failed or tuned.failed:
            body.append([row.title, "failed", "failed", "-", "-"])
            continue
        body.append(
            [
                row.title,
                time_cell(plain, cpu),
                time_cell(tuned, cpu),
                number(median(plain.cpu) / median(tuned.cpu)),
                f"{number(median(plain.first))} / {number(median(tuned.first))}",
            ]
        )
    header = ["case", "CPU ms", "CPU ms, autotuned", "ratio", "first run, s"]
    text = table(header, body)
    failed = failures(rows)
    return f"{text}\n{failed}" if failed else text


def publish(path: Path, name: str, content: str) -> bool:
    """Puts content between a file's markers; false if it has none."""
    text = path.read_text() if path.exists() else ""
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    if start not in text or end not in text:
        return False
    path.write_text(replaced(text, name, content))
    return True


def replaced(text: str, name: str, content: str) -> str:
    """A page with other content between its markers of that name."""
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    head, rest = text.split(start, 1)
    _, tail = rest.split(end, 1)
    return f"{head}{start}\n{content}\n{end}{tail}"
