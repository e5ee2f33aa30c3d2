"""The constant tensors of an ir.Graph: how passes read, add and look them up.

A value of the graph is a constant if it has a data key; what the key stands for is
kept here until the backend stores it. Keys are made from the content, so that equal
data is stored once.
"""

from __future__ import annotations

import torch

from .. import ir
from ..errors import Unsupported
from ..ir.named_data import content_key
from .torch_dtypes import dtype_of


def wide_element(tensor: torch.Tensor) -> int | None:
    """An element of an int64 tensor that does not fit int32, if there is one."""
    if tensor.dtype is torch.int64 and tensor.numel():
        for extreme in map(int, tensor.aminmax()):
            if not -(2**31) <= extreme < 2**31:
                return extreme
    return None


class Constants:
    """The data of one graph's constants."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self._tensors: dict[str, torch.Tensor] = {}

    def of(self, arg: ir.Arg) -> torch.Tensor | None:
        """The tensor that an argument is, if it is a constant."""
        value = self.graph.values[arg.id] if isinstance(arg, ir.Ref) else None
        if value is None or not value.is_constant:
            return None
        return self._tensors[value.data_key]

    def number(self, arg: ir.Arg) -> float | None:
        """An argument that is a number, also as a constant of one element."""
        if isinstance(arg, (int, float)):
            return float(arg)
        tensor = self.of(arg)
        return float(tensor) if tensor is not None and tensor.numel() == 1 else None

    def add(self, name: str, tensor: torch.Tensor) -> ir.Ref:
        """A new value of the graph, with this content."""
        shape, key = tuple(tensor.shape), self.key(tensor)
        value = ir.Value(name, dtype_of(tensor), shape, shape, data_key=key)
        return ir.Ref(self.graph.add(value))

    def fill(self, value: int, tensor: torch.Tensor) -> None:
        """Gives a value of the graph this content, instead of one that is computed."""
        self.graph.values[value].data_key = self.key(tensor)

    def key(self, tensor: torch.Tensor) -> str:
        """The key under which a tensor is kept."""
        plain = tensor.detach().cpu().contiguous()
        if 0 in plain.stride():
            # A dimension of one element may have stride 0, which ExecuTorch refuses.
            plain = plain.clone(memory_format=torch.contiguous_format)
        wide = wide_element(plain)
        if wide is not None:
            raise Unsupported(
                f"an int64 constant must fit int32, got {wide};"
                " keep its op on the CPU with operator_blocklist"
            )
        data = [plain.view(-1).view(torch.uint8).numpy().data] if plain.numel() else []
        key = content_key(dtype_of(plain), plain.shape, data)
        self._tensors[key] = plain
        return key

    def used(self) -> dict[str, torch.Tensor]:
        """By key, what values of the graph have: its constants and initial states."""
        keys = {value.data_key for value in self.graph.values if value.data_key}
        return {key: self._tensors[key] for key in sorted(keys)}
