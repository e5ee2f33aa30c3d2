"""How far results are from what they must be.

An element may be off by `atol + rtol * |expected|`. NaN and infinities must be where
they are expected; what is measured is measured on the other elements, in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

# By type, the default of `rtol`, and of `atol` as a share of the largest value that is
# expected; 0 for integers. A whole model rounds often, so the limits of single ops, in
# plan/accuracy.py, are narrower.
_DEFAULTS = {
    "float64": (1e-3, 1e-4),
    "float32": (1e-3, 1e-4),
    "float16": (1e-2, 1e-2),
    "bfloat16": (5e-2, 5e-2),
}


@dataclass(frozen=True)
class Tolerance:
    """What is asked for; None stands for the default of a type."""

    rtol: float | None = None
    atol: float | None = None


@dataclass(frozen=True)
class Difference:
    """One result beside what is expected."""

    type: str
    shape: list[int]
    max_abs: float
    max_rel: float  # where something else than 0 is expected
    snr_db: float | None  # None if there is no difference
    departing: int  # elements beyond the tolerance
    problem: str = ""  # why it is none of that: another shape or type

    @property
    def departs(self) -> bool:
        return bool(self.departing or self.problem)

    @property
    def noise(self) -> float:
        """To sort by: larger is worse."""
        if self.problem:
            return math.inf
        return -math.inf if self.snr_db is None else -self.snr_db

    def brief(self) -> str:
        if self.problem:
            return self.problem
        snr = "equal" if self.snr_db is None else f"SNR {self.snr_db:.1f} dB"
        text = f"max abs {self.max_abs:.3g}, max rel {self.max_rel:.3g}, {snr}"
        if self.departing:
            text += f"; {self.departing} of {math.prod(self.shape)} elements depart"
        return text


def difference(got: Any, wanted: Any, tolerance: Tolerance) -> Difference:
    """Of two tensors or numbers."""
    import torch

    got, wanted = torch.as_tensor(got), torch.as_tensor(wanted)
    kind, shape = str(wanted.dtype).removeprefix("torch."), list(wanted.shape)
    problem = ""
    if got.shape != wanted.shape:
        problem = f"shape must be {shape}, got {list(got.shape)}"
    elif got.dtype is not wanted.dtype:
        problem = f"type must be {kind}, got {str(got.dtype).removeprefix('torch.')}"
    if problem:
        return Difference(kind, shape, math.nan, math.nan, None, 0, problem)
    a, b = got.detach().to(torch.float64), wanted.detach().to(torch.float64)
    same = (a == b) | (a.isnan() & b.isnan())
    finite = a.isfinite() & b.isfinite()
    off = torch.where(finite, (a - b).abs(), 0)
    size = torch.where(finite, b.abs(), 0)
    rtol, share = _DEFAULTS.get(kind, (0.0, 0.0))
    rtol = rtol if tolerance.rtol is None else tolerance.rtol
    atol = tolerance.atol
    if atol is None:
        atol = share * float(size.max()) if size.numel() else 0.0
    departs = torch.where(finite, off > atol + rtol * size, ~same)
    counted = off[size > 0] / size[size > 0]
    return Difference(
        kind,
        shape,
        float(off.max()) if off.numel() else 0.0,
        float(counted.max()) if counted.numel() else 0.0,
        _snr(float(size.square().sum()), float(off.square().sum())),
        int(departs.sum()),
    )


def _snr(signal: float, noise: float) -> float | None:
    """In decibels; the least where nothing is expected and something is there."""
    if not noise:
        return None
    return 10 * math.log10(signal / noise) if signal else -math.inf
