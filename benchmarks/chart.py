"""Bars of ratios on a logarithmic scale, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .report import geometric_mean, number

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


@dataclass(frozen=True)
class Bar:
    """One row: a bar from 1 to the mean of its ratios, and a dot for each."""

    title: str
    what: str  # in small print below
    kind: str  # its class in the style: gpu or cpu
    ratios: Sequence[float]

    @property
    def mean(self) -> float:
        return geometric_mean(self.ratios)


def _row(bar: Bar, y: int) -> list[str]:
    mean = bar.mean
    left, right = sorted((_x(mean), _x(1)))
    lines = [
        _text(_LEFT - 8, y, "strong", "end", bar.title),
        _text(_LEFT - 8, y + 14, "small", "end", bar.what),
        f'<rect class="{bar.kind}" x="{left}" y="{y - _BAR // 2}"'
        f' width="{right - left:.1f}" height="{_BAR}" rx="2"/>',
    ]
    lines += [
        f'<circle class="dot" cx="{_x(ratio)}" cy="{y + 14}" r="2.5"/>'
        for ratio in bar.ratios
    ]
    # Beyond the bar, on the side that it points to.
    side, anchor = (1, "start") if mean > 1 else (-1, "end")
    lines.append(
        _text(_x(mean) + side * 6, y + 5, "strong", anchor, f"{number(mean)}x")
    )
    return lines


def draw(
    title: str, description: str, note: str, unit: str, bars: Sequence[Bar]
) -> str:
    """The bars, sorted, with ours among them; `description` is for those who hear."""
    ordered = sorted(bars, key=lambda bar: bar.mean, reverse=True)
    slower = sum(bar.mean > 1 for bar in ordered)
    bottom = _TOP + _ROW * (len(ordered) + 1)
    height = bottom + 44
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
        f' width="{_WIDTH}" height="{height}" role="img">',
        f"<title>{description}</title>",
        f"<style>{_STYLE}</style>",
        _text(16, 24, "title", "start", title),
        _text(16, 44, "small", "start", note),
        _text(_x(1) - 10, _TOP - 8, "small", "end", "&#8592; faster than ours"),
        _text(_x(1) + 10, _TOP - 8, "small", "start", "slower than ours &#8594;"),
        *_axis(bottom),
    ]
    for index, bar in enumerate(ordered):
        row = index + (index >= slower)
        lines += _row(bar, _TOP + _ROW * row + 16)
    y = _TOP + _ROW * slower + 22
    lines += [
        f'<path class="ours" d="M{_x(1)} {_TOP}V{bottom}"/>',
        _text(_LEFT - 8, y, "oursText", "end", "executorch-webgpu"),
        _text(_x(1) + 8, y, "oursText", "start", "1"),
        _text(_x(1), bottom + 34, "small", "middle", unit),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
