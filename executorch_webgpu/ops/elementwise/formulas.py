"""Registers formulas as ops: each plans a kernel of one elementwise step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ... import ir
from ...plan.pointwise import Formula, pointwise
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.registry import op


def elementwise(table: Mapping[str, Formula], *, keep: bool = False) -> None:
    """Ops by name; with `keep`, exports leave them whole."""
    for name, formula in table.items():
        pointwise(name)(formula)
        op(name, fusible=True, keep=keep)(_plan(name))


def elementwise_op(*names: str, keep: bool = False) -> Callable[[Formula], Formula]:
    """The same for a formula that is a function of its own."""

    def register(formula: Formula) -> Formula:
        elementwise(dict.fromkeys(names, formula), keep=keep)
        return formula

    return register


def _plan(name: str) -> Callable[..., None]:
    def plan(g: Recorder, *args: Any, out: Output) -> None:
        operands: dict[int, Tensor] = {}
        step = ir.Step(name, [_operand(arg, operands) for arg in args], out.dtype)
        g.pointwise([step], operands, out)

    return plan


def _operand(arg: Any, operands: dict[int, Tensor]) -> ir.Arg:
    if isinstance(arg, list):
        return [_operand(item, operands) for item in arg]
    if not isinstance(arg, Tensor):
        return arg  # type: ignore[no-any-return]
    for key, known in operands.items():
        if known is arg:
            return ir.Ref(key)
    operands[len(operands)] = arg
    return ir.Ref(len(operands) - 1)
