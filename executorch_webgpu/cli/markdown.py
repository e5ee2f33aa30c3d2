"""Numbers and tables as Markdown has them, for people."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value != value:
        return "-"
    return f"{value:,.{_decimals(value)}f}"


def byte_count(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def mean_and_spread(values: Sequence[float]) -> str:
    """The mean and the standard deviation."""
    if not values:
        return "-"
    mean = statistics.fmean(values)
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{number(mean)} ± {spread:,.{_decimals(mean)}f}"


def _decimals(value: float) -> int:
    return max(0, 2 - math.floor(math.log10(abs(value)))) if value else 2


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [
        "| " + " | ".join(header) + " |",
        "|" + "|".join(["---"] + ["---:"] * (len(header) - 1)) + "|",
    ]
    lines += ["| " + " | ".join(cells) + " |" for cells in rows]
    return "\n".join(lines)
