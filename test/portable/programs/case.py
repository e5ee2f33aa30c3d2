"""What a program is that all players are held equal on, and calls of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness import Function
from torch import nn

Inputs = tuple[Any, ...]
RESET = "reset"


@dataclass(frozen=True)
class Fails:
    """A call that every player refuses; `said` is a part of the text. With "", it is
    ExecuTorch that refuses, before a delegate is asked."""

    inputs: Inputs
    said: str
    # Of who plans the graph, where it knows more than that there is no plan.
    by_graph: str = ""


Step = Inputs | Fails | str


@dataclass
class Case:
    """A model, how it is exported, and what is done with the program."""

    model: nn.Module
    steps: Sequence[Step]
    example: Inputs = ()  # or the first step
    shapes: Any = None
    options: dict[str, Any] = field(default_factory=dict)  # of the partitioner
    delegates: int = 1
    strict: bool = False
    # Whether results are compared with eager's, beside each other.
    has_eager: bool = True
    # Limits of that, where the type's own are too narrow.
    rtol: float | None = None
    atol: float | None = None
    # Whether kernels are compiled as this package's own, which Python and C++ then
    # share. Else loops have counters, and all is compiled twice.
    trusts: bool = True

    def __post_init__(self) -> None:
        if not self.example:
            self.example = next(s for s in self.steps if isinstance(s, tuple))


def of(function: Callable[..., Any], *steps: Step, **given: Any) -> Case:
    """A function of tensors; `dims` are the dynamic ones of each input."""
    dims = given.pop("dims", None)
    shapes = None if dims is None else (tuple(dims),)
    return Case(Function(function), steps, shapes=shapes, **given)


Programs = dict[str, Callable[[], Case]]


def named(*functions: Callable[[], Case]) -> Programs:
    """By their functions' names."""
    return {each.__name__.replace("_", " "): each for each in functions}
