"""What the runtime logs of a delegate, and how a reader of the log finds its call.

An ETRecord maps identifiers of a delegate to nodes of the model. ExecuTorch's Inspector
takes an identifier for that of an event if it is part of the event's name, so that
names can say more: a launch is `#3 aten.mm.default: tiles`, for call 3 of the graph,
its op and its kernel. A value that is logged is `#3 aten.mm.default`. A call whose
result is no value of the model has a key for its launches alone. No two launches of a
plan have one name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from .plan import Plan


def value_key(call: int) -> str:
    """What is part of the names of a call's launches and of its value."""
    return f"#{call} "


def launch_key(call: int, op: str) -> str:
    """What is part of the names of a call's launches alone."""
    return f"#{call} {op}: "


def value_name(call: int, op: str) -> str:
    return f"#{call} {op}"


def launch_names(plan: Plan) -> list[str]:
    """The names of a plan's dispatches."""
    return list(
        _numbered(
            f"#{step.call} {step.label}: {plan.pipelines[step.pipeline].label}"
            for step in plan.dispatches
        )
    )


def _numbered(names: Iterable[str]) -> Iterator[str]:
    """The names, those that come again with a number."""
    met: Counter[str] = Counter()
    for name in names:
        met[name] += 1
        yield name if met[name] == 1 else f"{name} ({met[name]})"
