"""docs/performance.md in, the README's table and its chart out.

The page holds all that is kept of a run; what else shows numbers is made of it, so
that everything tells of the same run, and nothing has to be measured to draw it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from . import cases
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


# The chart, in pixels.
_WIDTH, _LEFT, _RIGHT = 860, 220, 60
_TOP, _ROW, _BAR = 66, 40, 16
_LOW, _HIGH = 0.02, 200.0  # of the axis
_TICKS = (0.03, 0.1, 0.3, 1, 3, 10, 30, 100)

# Both for pages with a light and with a dark background.
_STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .small { font-size: 11px; fill: #59636e }
  .strong { font-weight: 600 }
  .grid { stroke: #d1d9e0 }
  .ours { stroke: #0969da; stroke-width: 2 }
  .oursText { fill: #0969da; font-weight: 600 }
  .gpu { fill: #8250df }
  .cpu { fill: #818b98 }
  .dot { fill: #1f2328; fill-opacity: 0.45 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .small { fill: #9198a1 }
    .grid { stroke: #3d444d }
    .ours { stroke: #4493f8 }
    .oursText { fill: #4493f8 }
    .gpu { fill: #ab7df8 }
    .cpu { fill: #656c76 }
    .dot { fill: #f0f6fc }
  }
"""


def _x(ratio: float) -> float:
    share = math.log(ratio / _LOW) / math.log(_HIGH / _LOW)
    return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)


def _text(x: float, y: float, kind: str, anchor: str, content: str) -> str:
    return (
        f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{content}</text>'
    )


def _axis(bottom: int) -> list[str]:
    lines = []
    for tick in _TICKS:
        x = _x(tick)
        lines.append(f'<path class="grid" d="M{x} {_TOP}V{bottom}"/>')
        lines.append(_text(x, bottom + 16, "small", "middle", f"{tick:g}"))
    return lines


def _peer_row(speed: Speed, title: str, y: int) -> list[str]:
    """A bar from ours to the mean, and a dot for every case."""
    ratios, mean = speed.ratios[title], speed.mean(title)
    is_gpu = any(peer.title == title and peer.kind == "gpu" for peer in PEERS)
    what = "WebGPU, on the same driver" if is_gpu else "on the CPU, without a driver"
    if len(ratios) < len(speed.ours):
        what = f"{what}; {len(ratios)} cases"
    left, right = sorted((_x(mean), _x(1)))
    kind = "gpu" if is_gpu else "cpu"
    lines = [
        _text(_LEFT - 8, y, "strong", "end", title),
        _text(_LEFT - 8, y + 14, "small", "end", what),
        f'<rect class="{kind}" x="{left}" y="{y - _BAR // 2}"'
        f' width="{right - left:.1f}" height="{_BAR}" rx="2"/>',
    ]
    lines += [
        f'<circle class="dot" cx="{_x(ratio)}" cy="{y + 14}" r="2.5"/>'
        for ratio in ratios.values()
    ]
    # Beyond the bar, on the side that it points to.
    side, anchor = (1, "start") if mean > 1 else (-1, "end")
    lines.append(
        _text(_x(mean) + side * 6, y + 5, "strong", anchor, f"{number(mean)}x")
    )
    return lines


def chart(speed: Speed) -> str:
    """An SVG: every peer's time over ours, sorted, with ours among them."""
    titles = sorted(speed.ratios, key=speed.mean, reverse=True)
    slower = sum(speed.mean(title) > 1 for title in titles)
    bottom = _TOP + _ROW * (len(titles) + 1)
    height = bottom + 44
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
        f' width="{_WIDTH}" height="{height}" role="img">',
        "<title>Time of each peer relative to executorch-webgpu</title>",
        f"<style>{_STYLE}</style>",
        _text(16, 24, "title", "start", "Time relative to executorch-webgpu"),
        _text(
            16,
            44,
            "small",
            "start",
            f"bar: geometric mean of {len(speed.ours)} cases; dot: one case;"
            " logarithmic scale",
        ),
        _text(_x(1) - 10, _TOP - 8, "small", "end", "&#8592; faster than ours"),
        _text(_x(1) + 10, _TOP - 8, "small", "start", "slower than ours &#8594;"),
        *_axis(bottom),
    ]
    for index, title in enumerate(titles):
        row = index + (index >= slower)
        lines += _peer_row(speed, title, _TOP + _ROW * row + 16)
    y = _TOP + _ROW * slower + 22
    lines += [
        f'<path class="ours" d="M{_x(1)} {_TOP}V{bottom}"/>',
        _text(_LEFT - 8, y, "oursText", "end", "executorch-webgpu"),
        _text(_x(1) + 8, y, "oursText", "start", "1"),
        _text(_x(1), bottom + 34, "small", "middle", "times our wall time"),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
