"""Whether a call's results are eager's, as near as the project's tests ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from accuracy import BITS, TOLERANCES, is_same, slack
from harness import compare
from torch.testing._comparison import default_tolerances
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

from .samples import Call

_MEMORY = "what is in memory that nobody wrote to"
_RANDOM = "drawn at random"
# Ops that torch does not determine the result of: only shape and type are compared.
UNDETERMINED = {
    "bernoulli": _RANDOM,
    "empty": _MEMORY,
    "empty_like": _MEMORY,
    "empty_permuted": _MEMORY,
    "empty_strided": _MEMORY,
    # ExecuTorch's kernel adds to its result without setting it to zero.
    "max_pool2d_with_indices_backward": _MEMORY,
    "new_empty": _MEMORY,
    "new_empty_strided": _MEMORY,
    "randn": _RANDOM,
}


def difference(call: Call, got: Sequence[Any]) -> str:
    """What is unlike eager's results; empty if nothing is."""
    wanted = call.eager()
    if len(got) != len(wanted):
        return f"{len(got)} results, not {len(wanted)}"
    for number, (result, value) in enumerate(zip(got, wanted)):
        text = _of_one(call, number, torch.as_tensor(result), torch.as_tensor(value))
        if text:
            return f"result {number}: {text}"
    return ""


def _of_one(call: Call, number: int, got: torch.Tensor, wanted: torch.Tensor) -> str:
    if call.op.name in UNDETERMINED:
        got, wanted = torch.zeros_like(got), torch.zeros_like(wanted)
    try:
        compare([got], [wanted], *_tolerance(wanted.dtype))
    except AssertionError as error:
        if not _is_cancelled(call, number, got, wanted):
            return " ".join(str(error).split())[:300]
    return ""


def _tolerance(dtype: torch.dtype) -> tuple[float, float]:
    """The project's; of types that only the CPU computes, torch's own."""
    only_cpu = (torch.float64, torch.complex64, torch.complex128)
    if dtype in only_cpu:
        relative, absolute = default_tolerances(dtype)
        return relative, absolute
    return TOLERANCES.get(dtype, (0.0, 0.0))


def _is_cancelled(
    call: Call, number: int, got: torch.Tensor, wanted: torch.Tensor
) -> bool:
    """Whether elements are as near to float64's as sums that cancel may be: within
    some ulp of the largest element."""
    elementwise = isinstance(call.op, (UnaryUfuncInfo, BinaryUfuncInfo))
    alike = (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    if elementwise or not alike or wanted.dtype not in BITS:
        return False
    exact = call.eager(torch.float64)[number].double()
    largest = exact.abs().nan_to_num(0, 0).max()
    near = (got.double() - exact).abs() <= slack(largest, wanted.dtype)
    return bool((near | is_same(got, wanted)).all())
