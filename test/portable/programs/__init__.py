"""The programs that all players are held equal on, by theme."""

from __future__ import annotations

from . import delegates, dtypes, every_op, layers, shapes, sizes, states
from .case import RESET, Case, Fails, Programs

__all__ = ["LONG", "PROGRAMS", "RESET", "Case", "Fails"]


def _all(*themes: Programs) -> Programs:
    programs: Programs = {}
    for theme in themes:
        assert not programs.keys() & theme.keys(), "a name must be one program's"
        programs |= theme
    return programs


PROGRAMS = _all(
    *(sizes.PROGRAMS, dtypes.PROGRAMS, shapes.PROGRAMS, states.PROGRAMS),
    *(layers.PROGRAMS, delegates.PROGRAMS, every_op.PROGRAMS),
)

# What compiles many kernels to decide what others decide.
LONG = frozenset({"recipes of sizes", "cache of float32", "cache of bfloat16"})
