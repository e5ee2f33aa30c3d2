"""Calls of ATen overloads as PyTorch's own samples make them (OpInfo).

`recorded(name)` is what the samples of the op of that name, run in eager torch, hand to
the overload. None if PyTorch has no op of that name, or it calls other overloads.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from opinfo.samples import OPS
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._python_dispatch import TorchDispatchMode

Call = tuple[tuple[Any, ...], dict[str, Any]]

# The first samples are the plain ones; later ones try arguments that are rarely given.
_SAMPLES = 8


class _Recorder(TorchDispatchMode):
    """Keeps the first call of an overload, or of its view if it is a copying one."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.names = (name, name.replace("_copy.", "."))
        self.call: Call | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if str(func) in self.names and self.call is None:
            self.call = (tuple(args), dict(kwargs))
        return func(*args, **kwargs)


@functools.cache
def recorded(name: str) -> Call | None:
    """A call on operands of float32; preferably on some elements in two dimensions."""
    first = None
    for call in _calls(name):
        if call is not None and _is_plain(call):
            return call
        first = first or call
    return first


def _calls(name: str) -> Iterator[Call | None]:
    base = name.split(".")[1].replace("_copy", "")
    for op in OPS.values():
        names = {op.name.rpartition(".")[2], op.aten_name}
        if base in names and torch.float32 in op.supported_dtypes("cpu"):
            samples = op.sample_inputs("cpu", torch.float32)
            for sample in itertools.islice(samples, _SAMPLES):
                yield _call(name, op, sample)


def _call(name: str, op: OpInfo, sample: SampleInput) -> Call | None:
    # In inference mode, composite ops are dispatched before they are decomposed.
    with torch.inference_mode(), _Recorder(name) as recorder:
        op(sample.input, *sample.args, **sample.kwargs)
    return recorder.call


def _is_plain(call: Call) -> bool:
    main = next((arg for arg in call[0] if isinstance(arg, torch.Tensor)), None)
    return main is not None and main.dim() >= 2 and main.numel() > 1
