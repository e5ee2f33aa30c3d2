"""Positions of the tokens of a call in their sequence, as kernels read them.

Enters: an integer that is data, a tensor of positions, or a number that is known (0 if
none is given), where the first token is. Leaves: one WGSL function.
"""

from __future__ import annotations

from .tensor import DataInt, Tensor
from .wgsl_text import Param

Position = DataInt | Tensor | int | None


def position_code(
    at: Position, limit: int, checked: bool = False
) -> tuple[str, dict[str, Tensor], dict[str, Param]]:
    """`fn position(s)` of token s, below `limit`; what it reads; its parameters.

    `checked` reports a position outside the limit; either way it is clamped. An integer
    that is data is limited on the host instead (`Recorder.limit`).
    """
    inputs: dict[str, Tensor] = {}
    add = 0
    if isinstance(at, DataInt):
        inputs["pos"], add = at.tensor, at.add
        value = "get_pos(0) + p.pos_add + s"
    elif isinstance(at, Tensor):
        inputs["pos"] = at
        value = "get_pos(s) + p.pos_add"
    else:
        add = at or 0
        value = "s + p.pos_add"
    row = "clamp(raw_position(s), 0, p.pos_limit - 1)"
    if checked:
        row = "clamped_index(raw_position(s), p.pos_limit)"
    code = (
        f"fn raw_position(s: i32) -> i32 {{ return {value}; }}\n"
        f"fn position(s: i32) -> i32 {{ return {row}; }}\n"
    )
    return code, inputs, {"pos_add": add, "pos_limit": limit}
