"""A call of every op."""

from __future__ import annotations

from collections.abc import Sequence

import accuracy
import op_coverage
import torch
from op_programs import Call, Calls

from .case import Case, Programs


def op_groups() -> dict[str, list[str]]:
    """The public ops, some dozens to a program."""
    groups: dict[str, list[str]] = {}
    for name in op_coverage.public_ops():
        if not op_coverage.is_undefined(name) and "choose_qparams" not in name:
            family = "elementwise" if name in op_coverage.drawn_ops() else ""
            family = family or accuracy.of(name).name
            groups.setdefault(family, []).append(name)
    return {
        f"{family} {part}": names[first : first + _OPS]
        for family, names in groups.items()
        for part, first in enumerate(range(0, len(names), _OPS))
    }


_OPS = 40


def of_ops(names: Sequence[str]) -> Case:
    calls = [Call(name, torch.int32 if _is_of_ints(name) else None) for name in names]
    inputs = tuple(x for call in calls for x in call.inputs)
    # How near each is to eager is decided elsewhere, by limits of its own.
    return Case(Calls(calls), [inputs], has_eager=False)


def _is_of_ints(name: str) -> bool:
    return any(part in name for part in ("bitwise", "shift", "gcd", "lcm"))


PROGRAMS: Programs = {
    f"ops {group}": lambda names=names: of_ops(names)
    for group, names in op_groups().items()
}
