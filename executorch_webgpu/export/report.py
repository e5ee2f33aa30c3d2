"""Report: how much of a program is on the GPU, what is not, and why.

The partitioner fills it node by node, bodies of control flow included; `preprocess`
adds what only the finished graph of a delegate shows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from .multiply_adds import readable


@dataclass(frozen=True)
class Fallback:
    """A node that stays on the CPU."""

    node: str
    op: str
    reason: str


@dataclass
class Report:
    """What was delegated and what was not, of one program or several methods."""

    delegated: Counter[str] = field(default_factory=Counter)
    fallbacks: list[Fallback] = field(default_factory=list)
    # Delegates that other partitioners made before, by their backend.
    elsewhere: Counter[str] = field(default_factory=Counter)
    # Multiply-adds at the sizes of the example inputs.
    gpu_multiply_adds: int = 0
    cpu_multiply_adds: int = 0
    elsewhere_multiply_adds: int = 0
    # Integer weights that take more bits on the GPU than in the model: a line each.
    widened: list[str] = field(default_factory=list)
    # What keeps a program that was to be portable from running without Python, or some
    # of its sizes: a line each.
    not_portable: list[str] = field(default_factory=list)
    # Layers that a recipe was to quantize and left as they are: a line each.
    not_quantized: list[str] = field(default_factory=list)
    # CPU time of this backend, by stage of the export (stages.py).
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def complete(self) -> bool:
        """Whether nothing is left for the CPU."""
        return not self.fallbacks

    @property
    def summary(self) -> str:
        """One line: how many ops, and how much of the arithmetic."""
        ops = sum(self.delegated.values())
        line = f"{ops} of {ops + len(self.fallbacks)} ops on WebGPU"
        total = self.gpu_multiply_adds + self.cpu_multiply_adds
        total += self.elsewhere_multiply_adds
        if total:
            share = _share(self.gpu_multiply_adds, total)
            line += f", with {share} of {readable(total)} multiply-adds"
        return line

    @property
    def left_over(self) -> str:
        """The rows of the table: what stays on the CPU, and why."""
        return self._table(self._fallback_rows())

    def __str__(self) -> str:
        rows = [(n, c, "WebGPU") for n, c in sorted(self.delegated.items())]
        rows += [("(delegate)", c, n) for n, c in sorted(self.elsewhere.items())]
        table = self._table([*rows, *self._fallback_rows()])
        return "\n".join([table, *self.notes])

    @property
    def notes(self) -> list[str]:
        """What is not as a user may expect."""
        return [*self.not_quantized, *self.widened, *self.not_portable]

    def _fallback_rows(self) -> list[tuple[str, int, str]]:
        grouped = Counter((f.op, f.reason) for f in self.fallbacks)
        return [(n, c, f"CPU: {reason}") for (n, reason), c in sorted(grouped.items())]

    def _table(self, rows: Sequence[tuple[str, int, str]]) -> str:
        cells = [("op", "count", "where"), *((a, str(b), c) for a, b, c in rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(2)]
        lines = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c}" for a, b, c in cells]
        return "\n".join([*lines, self.summary])


def _share(count: int, total: int) -> str:
    """A percentage; 100% and 0% are said only of all and of nothing."""
    percent = 100 * count / total
    if 0 < count < total:
        percent = min(max(percent, 0.1), 99.9)
    return f"{percent:.3g}%"
