"""Registers formulas as ops: each op is an elementwise program of one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ... import ir
from ...plan import registry
from ...plan.accuracy import Accuracy
from ...plan.pointwise import Formula, pointwise
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.registry import Cheap


def elementwise(
    table: Mapping[str, Formula],
    *,
    accuracy: Accuracy,
    keep: bool = False,
    cheap: Cheap = Cheap.NEVER,
    cast: bool = False,
) -> None:
    """Registers ops by name; the flags, which hold for all of them, are `Op`'s."""
    for name, formula in table.items():
        pointwise(name)(formula)
        registry.register(
            registry.Op(
                name=name,
                function=_plan(name),
                accuracy=accuracy,
                fusible=True,
                keep=keep,
                cheap=cheap,
                cast=cast,
            )
        )


def elementwise_op(
    *names: str,
    accuracy: Accuracy,
    keep: bool = False,
    cheap: Cheap = Cheap.NEVER,
    cast: bool = False,
) -> Callable[[Formula], Formula]:
    """The same for a formula that is a function of its own."""

    def register(formula: Formula) -> Formula:
        table = dict.fromkeys(names, formula)
        elementwise(table, accuracy=accuracy, keep=keep, cheap=cheap, cast=cast)
        return formula

    return register


def _plan(name: str) -> Callable[..., None]:
    def plan(g: Recorder, *args: Any, out: Output) -> None:
        operands: dict[int, Tensor] = {}

        def operand(arg: Any) -> ir.Arg:
            if not isinstance(arg, Tensor):
                plain: ir.Arg = arg
                return plain
            for key, known in operands.items():
                if known is arg:
                    return ir.Ref(key)
            operands[len(operands)] = arg
            return ir.Ref(len(operands) - 1)

        step = ir.Step(name, ir.map_arg([*args], operand), out.dtype)
        g.pointwise([step], operands, out)

    return plan
