"""docs/performance.md in, the README's table and its chart out.

The page holds all that is kept of a run; what else shows numbers is made of it, so
that everything tells of the same run, and nothing has to be measured to draw it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from . import cases
from .chart import Bar, draw
from .peers import OURS, PEERS, find
from .report import geometric_mean, number, table

# What the README shows: a handful, from a matrix product to a language model.
SUMMARY = ("mm_512", "mobilenet", "minilm", "step", "smollm_step")


@dataclass(frozen=True)
class Speed:
    """The numbers of a published section, by the titles of peers and cases."""

    run: str  # the day, the command and the machine
    ours: dict[str, str]  # milliseconds with their spread, by case
    ratios: dict[str, dict[str, float]]  # wall time over ours, by peer and case

    def mean(self, peer: str) -> float:
        return geometric_mean([*self.ratios[peer].values()])


def read(page: str) -> Speed:
    """What `report.section` has written into a page."""
    text = page.split("<!-- speed:start -->")[1].split("<!-- speed:end -->")[0]
    run = text.strip().split("\n", 1)[0]
    ratios, times, *_ = _tables(text)
    rows = [row for row in ratios[1:] if not row[0].startswith("**")]
    found: dict[str, dict[str, float]] = {}
    for title in (peer.title for peer in PEERS if peer.title in ratios[0]):
        column = ratios[0].index(title)
        found[title] = {
            row[0]: float(row[column].replace(",", ""))
            for row in rows
            if row[column] != "-"
        }
    column = times[0].index(find(OURS).title)
    return Speed(run, {row[0]: row[column] for row in times[1:]}, found)


def _tables(text: str) -> list[list[list[str]]]:
    """The cells of every table in a page, its header first."""
    blocks = [b.split("\n") for b in text.split("\n\n") if b.startswith("| ")]
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        for lines in ([block[0], *block[2:]] for block in blocks)
    ]


def summary(speed: Speed) -> str:
    """The README's table: some cases, and the mean of all."""
    header = ["time relative to ours", *speed.ratios, "ours, ms"]
    body = []
    titles = [cases.find(name).title for name in SUMMARY]
    for title in (title for title in titles if title in speed.ours):
        values = [ratios.get(title, math.nan) for ratios in speed.ratios.values()]
        body.append([title, *map(number, values), speed.ours[title]])
    means = [f"**{number(speed.mean(peer))}**" for peer in speed.ratios]
    body.append([f"**geometric mean of {len(speed.ours)} cases**", *means, ""])
    return f"{speed.run}\n\n{table(header, body)}"


def chart(speed: Speed) -> str:
    """An SVG: every peer's time over ours."""
    return draw(
        "Time relative to executorch-webgpu",
        "Time of each peer relative to executorch-webgpu",
        f"bar: geometric mean of {len(speed.ours)} cases; dot: one case;"
        " logarithmic scale",
        "times our wall time",
        [_bar(speed, title) for title in speed.ratios],
    )


def _bar(speed: Speed, title: str) -> Bar:
    ratios = list(speed.ratios[title].values())
    is_gpu = any(peer.title == title and peer.kind == "gpu" for peer in PEERS)
    what = "WebGPU, on the same driver" if is_gpu else "on the CPU, without a driver"
    if len(ratios) < len(speed.ours):
        what = f"{what}; {len(ratios)} cases"
    return Bar(title, what, "gpu" if is_gpu else "cpu", ratios)
