"""How limits of accuracy are measured: each judges results element by element.

The limits are the package's, `plan/accuracy.py`, and so is which op has which:
`of(name)` is that of a registered op. The judges know that a driver may take numbers
below the normal ones for zero, and that on the edge of overflow infinity and the
largest number are neighbours.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from executorch_webgpu.plan import accuracy, registry
from executorch_webgpu.plan.accuracy import MANY_ULPS, STEPS

Op = Callable[..., torch.Tensor]
Inputs = tuple[torch.Tensor, ...]
Judge = Callable[[Op, torch.Tensor, Inputs], torch.Tensor]

ULPS = {getattr(torch, dtype.label): n for dtype, n in accuracy.ULPS.items()}
TOLERANCES = {
    getattr(torch, dtype.label): n for dtype, n in accuracy.TOLERANCES.items()
}
BITS = {torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}


@dataclass(frozen=True)
class Limit:
    """A limit of the package and what judges by it."""

    accuracy: accuracy.Accuracy
    judge: Judge

    @property
    def name(self) -> str:
        return self.accuracy.name

    def holds(self, op: Op, result: torch.Tensor, *inputs: torch.Tensor) -> bool:
        """Whether `result` is near enough to `op(*inputs)`, everywhere."""
        return bool(self.judge(op, result, inputs).all())


def wide(inputs: Inputs) -> Inputs:
    """The operands with floats as float64."""
    return tuple(x.double() if x.is_floating_point() else x for x in inputs)


def magnitudes(inputs: Inputs) -> Inputs:
    return tuple(
        x.abs().where(x.isfinite(), 0) if x.is_floating_point() else x for x in inputs
    )


def is_same(result: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    same = (result == wanted) | (result.isnan() & wanted.isnan())
    if result.is_floating_point():
        # Below the normal numbers a driver may flush to zero.
        tiny = torch.finfo(torch.float32).tiny
        same |= (result.abs() < tiny) & (wanted.abs() < tiny)
    return same


def is_close(result: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Whether results are within some ulp of the float64 values."""
    dtype = result.dtype
    wanted = exact.to(dtype)
    # On the edge of overflow, infinity and the largest number are neighbours.
    largest = torch.finfo(dtype).max
    clipped = result.double().clamp(-largest, largest)
    close = (clipped - exact.clamp(-largest, largest)).abs() <= slack(exact, dtype)
    flushed = torch.finfo(torch.float32).tiny
    close |= (result.abs() < flushed) & (exact.abs() < flushed)
    return close | (result == wanted) | (result.isnan() & wanted.isnan())


def slack(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The ulps that a function may be off, of numbers of that type."""
    smallest = torch.finfo(dtype).tiny
    exponent = torch.frexp(exact.abs().clamp_min(smallest).nan_to_num()).exponent
    unit = torch.ldexp(torch.ones_like(exact), exponent - 1 - BITS[dtype])
    return ULPS[dtype] * unit


def _moved(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Equal, with the signs of zeros; any NaN is as good as another."""
    wanted = op(*inputs)
    if not result.is_floating_point():
        return result == wanted
    equal = (result == wanted) & (result.signbit() == wanted.signbit())
    return equal | (result.isnan() & wanted.isnan())


def _equal(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    return is_same(result, op(*inputs))


def _function(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    exact = op(*wide(inputs))
    if not result.is_floating_point():
        return result == exact
    return is_close(result, exact)


def _cancelling(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    exact = op(*wide(inputs))
    size = 1 + exact.abs() + sum(x.double().abs() for x in inputs)
    unit = size * 2.0 ** -BITS[result.dtype]
    close = (result.double() - exact).abs() <= ULPS[result.dtype] * unit
    # Where float32 overflows on the way, it does so in torch, too.
    return close | is_close(result, exact) | is_same(result, op(*inputs))


def _composed(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    if result.dtype is not torch.float32:
        return _cancelling(op, result, inputs)
    exact = op(*wide(inputs))
    most = MANY_ULPS / ULPS[result.dtype] * slack(exact, result.dtype)
    near = (result.double() - exact).abs() <= most
    return near | _cancelling(op, result, inputs)


def _stepping(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Between what operands some ulp smaller and larger give."""
    corners = []
    for signs in itertools.product((-1, 0, 1), repeat=len(inputs)):
        moved = (
            x + sign * slack(x, result.dtype) for x, sign in zip(wide(inputs), signs)
        )
        corners.append(op(*moved).nan_to_num(0.0))
    low = functools.reduce(torch.minimum, corners)
    high = functools.reduce(torch.maximum, corners)
    inside = (result.double() >= low) & (result.double() <= high)
    return inside | is_close(result, op(*wide(inputs))) | is_same(result, op(*inputs))


def close_sum(
    op: Op, result: torch.Tensor, inputs: Inputs, terms: int = 0
) -> torch.Tensor:
    """Whether sums of products are as near to float64's as any order of summation
    in float32 is. `terms` is their number; else the largest operand's elements."""
    if not result.is_floating_point():
        return result == op(*inputs)
    exact, size = op(*wide(inputs)), op(*magnitudes(wide(inputs)))
    terms = terms or max(x.numel() for x in inputs)
    dtype = result.dtype
    largest, tiny = torch.finfo(torch.float32).max, torch.finfo(torch.float32).tiny
    rounding = 2.0 ** -BITS[dtype] * exact.abs() + torch.finfo(dtype).tiny
    bound = (terms + 2) * (2.0**-23 * size + tiny) + rounding
    clipped = torch.finfo(dtype).max
    near = (result.double().clamp(-clipped, clipped) - exact).abs() <= bound
    # On the way to a sum that fits, one order may overflow and another not; and an
    # infinity that float32 makes on the way meets those that were there.
    may_overflow = size > min(largest, clipped) / 2
    return near | may_overflow | (result == exact) | (result.isnan() & exact.isnan())


def _tolerant(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    relative, absolute = TOLERANCES.get(result.dtype, (0.0, 0.0))
    return torch.isclose(
        result, op(*inputs), rtol=relative, atol=absolute, equal_nan=True
    )


def in_steps(op: Op, result: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Equal but for a rounding that fell on the other side, which is one step."""
    if result.is_floating_point():
        return _tolerant(op, result, inputs)
    gap = (result.int() - op(*inputs).int()).abs()
    few = gap.sum() <= STEPS * gap.numel()
    return (gap == 0) | ((gap == 1) & few)


MOVED = Limit(accuracy.MOVED, _moved)
EQUAL = Limit(accuracy.EQUAL, _equal)
FUNCTION = Limit(accuracy.FUNCTION, _function)
CANCELLING = Limit(accuracy.CANCELLING, _cancelling)
COMPOSED = Limit(accuracy.COMPOSED, _composed)
STEPPING = Limit(accuracy.STEPPING, _stepping)
SUM = Limit(accuracy.SUM, close_sum)
TOLERANT = Limit(accuracy.TOLERANT, _tolerant)
STEP = Limit(accuracy.STEP, in_steps)
LIMITS = (
    *(MOVED, EQUAL, FUNCTION, CANCELLING, COMPOSED, STEPPING, SUM, TOLERANT, STEP),
)
_LIMITS = {limit.accuracy: limit for limit in LIMITS}


def of(name: str) -> Limit:
    """The limit of a registered op, such as aten.add.Tensor."""
    return _LIMITS[registry.all_ops()[name].accuracy]
