"""Rows in, Markdown out: facts and estimates apart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..chart import Bar, draw
from ..report import geometric_mean, number, table
from .results import MIDDLE, Launched, Row, Side, floor, useful
from .targets import LATENCIES, Assumed, Target


def section(rows: Sequence[Row], run: str) -> str:
    """Everything of a run, for docs/performance.md."""
    targets = list(dict.fromkeys(row.target for row in rows))
    models = [row for row in rows if row.case.is_model]
    ops = [row for row in rows if not row.case.is_model]
    seen = [row for row in ops if not row.case.is_unseen]
    unseen = [row for row in ops if row.case.is_unseen]
    parts = [run, "**Estimates.** " + assumptions(targets)]
    if seen:
        parts.append(summary(seen))
    if unseen:
        parts += [_UNSEEN, summary(unseen)]
    if models:
        parts += [_MODELS, model_table(models)]
    for which, group in (("", seen), (", cases that were not looked at", unseen)):
        for target, mine in _by_target(group).items():
            title = f"Estimated, {target.name} ({target.title}){which}, microseconds:"
            parts += [title, estimates(mine)]
    compared = [row for row in rows if row.tint]
    if compared:
        parts += [_TINT, tint_estimates(compared)]
    parts.append(f"**Facts.** {_SPILLS[_spills(rows)]}")
    for target, mine in _by_target(seen).items():
        parts += [f"Counted, {target.name}, ours / ONNX Runtime's:", facts(mine)]
    first, *_ = _by_target(compared).values() or [[]]
    if first:
        title = f"Counted, {first[0].target.name}, ours by naga / by Tint:"
        parts += [
            title,
            facts([_as_sides(row) for row in first if not row.case.is_model]),
        ]
    missing = failures(rows)
    return "\n\n".join(parts + ([missing] if missing else []))


def _by_target(rows: Sequence[Row]) -> dict[Target, list[Row]]:
    found: dict[Target, list[Row]] = {}
    for row in rows:
        found.setdefault(row.target, []).append(row)
    return found


_SPILLS = {
    False: "No kernel of either side spills registers or uses scratch memory.",
    True: "Kernels marked with * spill registers or use scratch memory.",
}


_UNSEEN = (
    "Cases that were not looked at while kernels were written: sizes that are no"
    " multiple of a tile, other strides, groups, heads and widths:"
)
_TINT = (
    "Chrome compiles by Tint, with checks that cannot be switched off, where wgpu"
    " compiles by naga. Estimated time of our plans by Tint over that by naga (above 1:"
    " the browser is slower):"
)
_MODELS = (
    "Whole models, milliseconds: sums over all dispatches, each no faster than memory"
    f" moves its operands, and {Assumed().launch:g} microseconds for its launch:"
)


def model_table(rows: Sequence[Row]) -> str:
    body = []
    for row in rows:
        sides = [row.ours, *([row.theirs] if row.theirs else [])]
        counts = ["-" if s.failed else str(len(s.launched)) for s in sides]
        times = [
            math.nan if s.failed else s.microseconds(row.case, row.target) / 1e3
            for s in sides
        ]
        ratios = [number(row.ratio(latency) or math.nan) for latency in LATENCIES]
        title = f"{row.case.title}, {row.target.name}"
        shown = " / ".join(map(number, times))
        body.append([title, " / ".join(counts), shown, *ratios])
    header = ["model", "dispatches, ours / theirs", "ours / theirs"]
    return table([*header, *(f"ratio, {latency}" for latency in LATENCIES)], body)


def _sides(row: Row) -> list[Side]:
    every = (row.ours, row.theirs, row.tint)
    return [side for side in every if side and not side.failed]


def _has_spills(one: Launched) -> bool:
    return bool(one.statistics.spills or one.statistics.scratch)


def _spills(rows: Sequence[Row]) -> bool:
    sides = [side for row in rows for side in _sides(row)]
    return any(_has_spills(one) for side in sides for one in side.launched)


def assumptions(targets: Sequence[Target]) -> str:
    assumed = Assumed()
    boards = "; ".join(
        f"{t.name}: {t.compute_units} compute units of {t.simds} SIMDs, {t.ghz} GHz,"
        f" {t.gigabytes:g} GB/s"
        for t in targets
    )
    return (
        "Assumed, in clocks: a load takes"
        f" {', '.join(map(str, LATENCIES))} ({MIDDLE} where not said), workgroup memory"
        f" {assumed.lds}, a scalar load {assumed.scalar_load}, a barrier"
        f" {assumed.barrier}, a branch {assumed.branch}; integer products, exp and the"
        f" like {assumed.slow} times a plain instruction; {assumed.load_bytes} bytes of"
        f" loads and {assumed.lds_bytes} of workgroup memory per clock and compute"
        f" unit. {boards}. A launch of a single op costs nothing. No op is faster than"
        " memory moves its operands and results once. Products of f16 are summed in f16"
        " on both sides, ours in runs of 16 (`f16_accumulate`)."
    )


def summary(rows: Sequence[Row]) -> str:
    """Means over the cases, by target and latency."""
    body = []
    for target, mine in _by_target(rows).items():
        ratios = {at: [row.ratio(at) for row in mine] for at in LATENCIES}
        known = [[one for one in ratios[at] if one is not None] for at in LATENCIES]
        means = [number(geometric_mean(some)) for some in known]
        slower = [str(sum(one < 0.97 for one in some)) for some in known]
        body.append([target.name, *means, f"{' / '.join(slower)} of {len(known[0])}"])
    header = ["geometric mean of ONNX Runtime WebGPU's time over ours"]
    header += [f"loads of {latency} clocks" for latency in LATENCIES]
    return table([*header, "slower by more than 3%"], body)


def tint_estimates(rows: Sequence[Row]) -> str:
    """Cases down, targets across, and the mean of each target."""
    columns = _by_target(rows)
    ratios = {
        (row.case, row.target): row.tint_ratio() or math.nan
        for mine in columns.values()
        for row in mine
    }
    body = [
        [case.title, *(number(ratios[case, target]) for target in columns)]
        for case in dict.fromkeys(row.case for row in rows)
    ]
    means = [
        geometric_mean([row.tint_ratio() or math.nan for row in mine])
        for mine in columns.values()
    ]
    body.append(["geometric mean", *map(number, means)])
    return table(["case", *(target.name for target in columns)], body)


def _as_sides(row: Row) -> Row:
    """Naga and Tint instead of ours and theirs."""
    return replace(row, theirs=row.tint)


def estimates(rows: Sequence[Row]) -> str:
    body = []
    for row in rows:
        cells = [row.case.title, _time(row, row.ours), _time(row, row.theirs)]
        cells += [number(row.ratio(latency) or math.nan) for latency in LATENCIES]
        cells.append(number(floor(row.case, row.target)))
        cells.append(_peak(row, row.ours))
        cells.append(_peak(row, row.theirs))
        body.append(cells)
    header = ["case", "ours", "ONNX Runtime"]
    header += [f"ratio, {latency}" for latency in LATENCIES]
    header += ["memory's floor", "of peak, ours", "of peak, theirs"]
    return table(header, body)


def _time(row: Row, side: Side | None) -> str:
    if not side or side.failed:
        return "-"
    total = side.microseconds(row.case, row.target)
    bound = side.main.estimates[MIDDLE].bound
    if total == floor(row.case, row.target):
        bound = "memory"
    return f"{number(total)} ({bound})"


def _peak(row: Row, side: Side | None) -> str:
    """Of the multiply-adds that the target could do in float32 in that time."""
    if not side or side.failed or not row.case.fma:
        return "-"
    time = side.microseconds(row.case, row.target)
    return f"{100 * row.case.fma / time / row.target.peak():.0f}%"


_COLUMNS: tuple[tuple[str, Callable[[Row, Launched], str]], ...] = (
    ("VGPRs", lambda row, one: str(one.statistics.vgprs)),
    ("LDS bytes", lambda row, one: str(one.statistics.lds)),
    ("waves a SIMD holds", lambda row, one: str(one.statistics.waves_per_simd)),
    (
        "waves per SIMD",
        lambda row, one: number(one.estimates[MIDDLE].waves_per_simd),
    ),
    ("vector instructions", lambda row, one: f"{one.tally.vector_alu:,.0f}"),
    (
        "of them needed",
        lambda row, one: f"{100 * useful(row.case, one):.0f}%" if row.case.fma else "-",
    ),
    ("loads", lambda row, one: f"{one.tally.loads:,.0f}"),
    ("round trips", lambda row, one: f"{one.tally.round_trips:,.0f}"),
)


def facts(rows: Sequence[Row]) -> str:
    """Of the kernel that takes longest, and of one wave of it."""
    body = []
    for row in rows:
        sides = [row.ours, *([row.theirs] if row.theirs else [])]
        names = [_kernel(side) for side in sides]
        cells = [row.case.title, " / ".join(names)]
        for _, cell in _COLUMNS:
            shown = ["-" if side.failed else cell(row, side.main) for side in sides]
            cells.append(" / ".join(shown))
        body.append(cells)
    return table(["case", "kernel", *(name for name, _ in _COLUMNS)], body)


def _kernel(side: Side) -> str:
    if side.failed:
        return "-"
    more = len(side.launched) - 1
    mark = "*" if any(map(_has_spills, side.launched)) else ""
    return f"{side.main.label}{mark}" + (f" + {more}" if more else "")


def dispatches(rows: Sequence[Row], count: int) -> str:
    """The slowest dispatches of each side of each case, equal ones together."""
    parts = []
    for row in rows:
        for who, side in (("ours", row.ours), ("ONNX Runtime", row.theirs)):
            if side and not side.failed:
                title = f"{row.case.title}, {row.target.name}, {who}, microseconds:"
                parts += [title, _slowest(side, row.target, count)]
    return "\n\n".join(parts)


def _slowest(side: Side, target: Target, count: int) -> str:
    # Equal dispatches were measured once, so they are the same object.
    times = Counter(map(id, side.launched))
    by_id = {id(one): one for one in side.launched}

    def total(key: int) -> float:
        return times[key] * by_id[key].in_model(target)[0]

    body = []
    for key in sorted(times, key=total, reverse=True)[:count]:
        one = by_id[key]
        grid, bound = "x".join(map(str, one.groups)), one.in_model(target)[1]
        cells = [one.label, grid, str(times[key]), number(total(key)), bound]
        cells += [number(one.in_model(target, at)[0]) for at in LATENCIES]
        cells.append(number(one.estimates[MIDDLE].waves_per_simd))
        cells += [f"{x:,.0f}" for x in (one.tally.vector_alu, one.tally.loads)]
        cells.append(number(one.moved / target.gigabytes / 1e3))
        body.append(cells)
    header = ["kernel", "grid", "times", "all", "bound"]
    header += [f"each, {latency}" for latency in LATENCIES]
    header += ["waves per SIMD", "vector instructions", "loads", "memory's floor"]
    return table(header, body)


def failures(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        sides = (
            ("ours", row.ours),
            ("ONNX Runtime", row.theirs),
            ("ours by Tint", row.tint),
        )
        for who, side in sides:
            if side and side.failed:
                lines.append(
                    f"- {row.case.title}, {row.target.name}, {who}: {side.failed}"
                )
    return "\n".join(["Not measured:", "", *lines]) if lines else ""


def chart(rows: Sequence[Row]) -> str:
    """An SVG: ONNX Runtime's estimated time over ours, by target."""
    bars = []
    shown = [row for row in rows if not (row.case.is_model or row.case.is_unseen)]
    for target, mine in _by_target(shown).items():
        known = [ratio for row in mine if (ratio := row.ratio()) is not None]
        if known:
            bars.append(Bar(target.name, target.title, "gpu", known))
    count = len({row.case.name for row in shown})
    return draw(
        "ONNX Runtime WebGPU on Radeons, estimated",
        "Estimated time of ONNX Runtime WebGPU relative to executorch-webgpu",
        f"bar: geometric mean of {count} cases; dot: one case; logarithmic scale;"
        f" loads of {MIDDLE} clocks",
        "times our estimated time",
        bars,
    )
