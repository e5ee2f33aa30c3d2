"""The programs that all players are held equal on, by theme."""

from __future__ import annotations

from . import (
    delegates,
    dtypes,
    every_op,
    layers,
    packed,
    pictures,
    shapes,
    sizes,
    states,
)
from .case import RESET, Case, Fails, Programs

__all__ = ["LONG", "ON_DAWN", "PROGRAMS", "RESET", "Case", "Fails"]


def _all(*themes: Programs) -> Programs:
    programs: Programs = {}
    for theme in themes:
        assert not programs.keys() & theme.keys(), "a name must be one program's"
        programs |= theme
    return programs


PROGRAMS = _all(
    *(sizes.PROGRAMS, dtypes.PROGRAMS, shapes.PROGRAMS, states.PROGRAMS),
    *(layers.PROGRAMS, pictures.PROGRAMS, packed.PROGRAMS),
    *(delegates.PROGRAMS, every_op.PROGRAMS),
)

# What compiles many kernels to decide what others decide.
LONG = frozenset({"recipes of sizes", "cache of float32", "cache of bfloat16"})

# What shows that Dawn gives the same, beside the long tests: sizes, subgroups, states,
# types, and errors from the GPU.
ON_DAWN = frozenset(
    {"from four", "indices", "failures counted", "sizes of layer_norm", "type int64"}
)
