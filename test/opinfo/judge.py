"""Whether a call's results are eager's, as near as the project's tests ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from accuracy import BITS, TOLERANCES, is_same, slack
from harness import compare
from torch.testing._comparison import default_tolerances
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo
from torch.utils import _pytree as pytree

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
# Ops that give places of elements, by the position of their dimension among the
# arguments: which of several equal elements torch takes is not determined.
PLACES = {
    "argsort": 1,
    "kthvalue": 2,
    "median": 1,
    "mode": 1,
    "nanmedian": 1,
    "sort": 1,
    "topk": 2,
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
    if not wanted.dim() and (got.dtype, wanted.dtype) == (torch.float32, torch.float16):
        # ExecuTorch makes tensors of numbers, which promote a half without dimensions.
        got = got.half()
    # They follow the elements, if these are given too.
    is_place = number == (0 if call.op.name == "argsort" else 1)
    if call.op.name in PLACES and is_place and got.dtype is wanted.dtype:
        got, wanted = (_elements(call, places) for places in (got, wanted))
    try:
        compare([got], [wanted], *_tolerance(wanted.dtype))
    except AssertionError as error:
        if not _is_cancelled(call, number, got, wanted):
            return " ".join(str(error).split())[:300]
    return ""


def _elements(call: Call, places: torch.Tensor) -> torch.Tensor:
    """The elements of the first operand that are at places along a dimension.

    The places themselves if they are determined, by a stable sort, or are no places:
    outside, or one of them twice.
    """
    args, kwargs = pytree.tree_unflatten(call.leaves, call.spec)
    (x, *_), position = args, PLACES[call.op.name]
    if not x.dim() or kwargs.get("stable"):
        return places
    dim = kwargs.get("dim", args[position] if len(args) > position else -1)
    reduced = places.dim() < x.dim()
    at = places.unsqueeze(dim) if reduced else places
    inside = bool(((at >= 0) & (at < x.shape[dim])).all())
    apart = bool((at.sort(dim).values.diff(dim=dim) > 0).all())
    return x.gather(dim, at) if inside and apart else places


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
