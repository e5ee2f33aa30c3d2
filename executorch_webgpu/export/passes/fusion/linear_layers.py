"""Linear layers as passes merge them: plain or packed weights, constants by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .... import ir
from ....ir.signatures import Linear, LinearPacked


@dataclass(frozen=True)
class Layer:
    """A call of a linear layer, perhaps with steps that follow it."""

    call: ir.Call
    args: Linear | LinearPacked

    @property
    def weight(self) -> ir.Ref:
        return self.args.weight if isinstance(self.args, Linear) else self.args.words

    @property
    def along(self) -> int:
        """The dimension of every constant along which the layer's rows lie."""
        return 0 if isinstance(self.args, Linear) else -1

    def constants(self) -> dict[str, ir.Ref | None]:
        """The arguments that differ from layer to layer."""
        if isinstance(self.args, Linear):
            return {"weight": self.args.weight, "bias": self.args.bias}
        return {
            "words": self.args.words,
            "scales": self.args.scales,
            "offsets": self.args.offsets,
            "bias": self.args.bias,
        }

    def others(self) -> dict[str, ir.Arg]:
        """The arguments that are the same for layers that can be one."""
        own = {*self.constants(), "rows"}
        return {name: arg for name, arg in vars(self.args).items() if name not in own}

    def with_constants(
        self, constants: Mapping[str, ir.Ref | None], rows: int
    ) -> Linear | LinearPacked:
        """The arguments with other constants, of so many rows."""
        changed: dict[str, Any] = {**constants}
        if isinstance(self.args, LinearPacked):
            changed["rows"] = rows
        return replace(self.args, **changed)


def layer_of(call: ir.Call) -> Layer | None:
    """A call as a layer; None if it is another op."""
    for kind in (Linear, LinearPacked):
        if call.op == kind.NAME:
            return Layer(call, kind.of(call))
    return None
