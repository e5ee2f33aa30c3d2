"""Calls of torch's ops as PyTorch tests them itself (OpInfo), as modules to export.

`calls(name, dtype, limit)` are calls of the op with everything but the tensors fixed.
They are the same in every run: OpInfo seeds its samples itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import ErrorInput, OpInfo, SampleInput
from torch.utils import _pytree as pytree

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "int32": torch.int32,
    "int64": torch.int64,
    "bool": torch.bool,
}
# Looks on the stack, and in its source files, for a test of unittest, whose name is the
# seed. There is none, and to look takes longer than to make the samples.
common_utils.extract_test_fn = lambda: None

OPS: dict[str, OpInfo] = {op.full_name: op for op in op_db}


class Call:
    """An op on one set of arguments, as a function of those that are tensors."""

    def __init__(self, op: OpInfo, sample: SampleInput) -> None:
        self.op = op
        arguments = ((sample.input, *sample.args), sample.kwargs)
        self.leaves, self.spec = pytree.tree_flatten(arguments)
        self.open = [
            i for i, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)
        ]
        # Programs take dense tensors in one order; in which is not the op's matter.
        self.inputs = tuple(_dense(self.leaves[i]) for i in self.open)

    def __call__(self, *inputs: torch.Tensor) -> list[Any]:
        """The results, in a row, without those that are None."""
        leaves = list(self.leaves)
        for i, tensor in zip(self.open, inputs, strict=True):
            leaves[i] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        results = pytree.tree_leaves(self.op(*args, **kwargs))
        return [result for result in results if result is not None]

    def __str__(self) -> str:
        shapes = (f"{str(x.dtype)[6:]}{list(x.shape)}" for x in self.inputs)
        return f"{self.op.full_name}({', '.join(shapes)})"

    def eager(self, dtype: torch.dtype | None = None) -> list[Any]:
        """What torch computes; of floats in `dtype`, if given."""
        inputs = [x.clone() for x in self.inputs]
        if dtype is not None:
            inputs = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
        with torch.no_grad():
            return self(*inputs)


def _dense(x: torch.Tensor) -> torch.Tensor:
    return x.detach().contiguous() if x.layout is torch.strided else x


class SideBySide(torch.nn.Module):
    """Calls as one module, so that they are exported at once."""

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__()
        self.calls = calls
        self.inputs = tuple(x for call in calls for x in call.inputs)

    def forward(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        results: list[Any] = []
        left = iter(inputs)
        for call in self.calls:
            results += call(*(next(left) for _ in call.open))
        return tuple(results)


def names(dtype: str) -> list[str]:
    """The ops that have samples of a type."""
    wanted = DTYPES[dtype]
    return [name for name, op in OPS.items() if wanted in op.supported_dtypes("cpu")]


def calls(name: str, dtype: str, limit: int = 0) -> list[Call]:
    """Of an op's samples, `limit` that are spread over them; all if it is 0."""
    op = OPS[name]
    samples = list(op.sample_inputs("cpu", DTYPES[dtype], requires_grad=False))
    count = min(limit, len(samples)) or len(samples)
    return [Call(op, samples[len(samples) * n // count]) for n in range(count)]


def first_call(name: str, dtype: str) -> Call:
    op = OPS[name]
    return Call(op, next(iter(op.sample_inputs("cpu", DTYPES[dtype]))))


def wrong_calls(name: str) -> list[Call]:
    """Calls that torch refuses."""
    op = OPS[name]
    errors: list[ErrorInput] = list(op.error_inputs("cpu"))
    return [Call(op, error.sample_input) for error in errors]
