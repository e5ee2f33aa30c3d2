"""How a tiled kernel loads an operand: four values at a time, along k or across it.

Enters: an operand's strides. Leaves: WGSL for tile.wgsl, `a_place` (found once per
invocation and row) and `a_load` (of one slice), likewise for b, and whether one load of
a vec4 does it. Beyond the edges nothing is branched around: rows and columns repeat the
last, whose sums are not stored, and k gives zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...plan.recorder import Tensor
from .product import function


@dataclass(frozen=True)
class Load:
    """How an operand is loaded."""

    name: str  # of the binding: a or b
    lines: str  # its other dimension: m or n
    deep: bool  # whether neighbouring invocations load along k
    across: bool  # whether a load has four columns of one k, or four k
    vec4: bool  # whether it is one vec4 of the buffer

    @property
    def code(self) -> str:
        return _across(self) if self.across else _along(self)

    @property
    def slice_code(self) -> str:
        """The same for slices that end within the operand: a_place(base, line, own)
        is where an invocation's own k of the first slice are, and a_load(at, k) loads
        those of the slice from k on, which costs an addition."""
        return _of_slices(self)


def load_a(a: Tensor) -> Load:
    row, column = a.strides[-2:]
    k = a.shape[-1]
    vec4 = column == 1 and _is_aligned(a, k, row)
    return Load("a", "m", deep=row != 1 or vec4, across=False, vec4=vec4)


def load_b(b: Tensor) -> Load:
    row, column = b.strides[-2:]
    k, n = b.shape[-2:]
    if row == 1 and k > 1:
        return Load("b", "n", True, across=False, vec4=_is_aligned(b, k, column))
    vec4 = column == 1 and _is_aligned(b, n, row)
    return Load("b", "n", False, across=True, vec4=vec4)


def _is_aligned(x: Tensor, extent: int, stride: int) -> bool:
    """Whether every fourth element of each line of `extent`, the lines `stride` apart,
    is the first of a vec4."""
    return all(n % 4 == 0 for n in (extent, stride, x.offset, *x.strides[:-2]))


def _along(load: Load) -> str:
    """Four k of one row of A, or of one column of B."""
    name, lines = load.name, load.lines
    line, step = ("row", "col") if name == "a" else ("col", "row")
    place = function(
        f"{name}_place(base: i32, line: i32) -> i32",
        [f"return base + min(line, p.{lines} - 1) * p.{name}_{line};"],
    )
    if load.vec4:
        body = [
            f"let v = vec4<E>(get_{name}4((at + min(k, p.k - 4)) >> 2u));",
            "return select(vec4<E>(), v, k < p.k);",
        ]
    else:
        gets = ", ".join(
            f"get_{name}(at + min(k + {i}, p.k - 1) * p.{name}_{step})"
            for i in range(4)
        )
        body = [
            f"let v = vec4<E>(vec4({gets}));",
            "return select(vec4<E>(), v, k + vec4<i32>(0, 1, 2, 3) < vec4<i32>(p.k));",
        ]
    loads = function(f"{name}_load(at: i32, k: i32) -> vec4<E>", body)
    return f"alias {name.upper()}Place = i32;\n{place}\n{loads}"


def _across(load: Load) -> str:
    """Four columns of one k."""
    if load.vec4:
        kind = "i32"
        place = "return base + min(column, p.n - 4);"
        value = "vec4<E>(get_b4((at + from_k) >> 2u))"
    else:
        kind = "vec4<i32>"
        columns = "min(column + vec4<i32>(0, 1, 2, 3), vec4<i32>(p.n - 1))"
        place = f"return base + {columns} * p.b_col;"
        gets = ", ".join(f"get_b(at[{i}] + from_k)" for i in range(4))
        value = f"vec4<E>(vec4({gets}))"
    return "\n".join(
        [
            f"alias BPlace = {kind};",
            function(f"b_place(base: i32, column: i32) -> {kind}", [place]),
            function(
                f"b_load(at: {kind}, k: i32) -> vec4<E>",
                [
                    "let from_k = min(k, p.k - 1) * p.b_row;",
                    f"return select(vec4<E>(), {value}, k < p.k);",
                ],
            ),
        ]
    )


def _of_slices(load: Load) -> str:
    """Four k of a row or column, or four columns of one k, for `slice_code`."""
    name, last = load.name, f"p.{load.lines} - 1"
    line, step = ("row", "col") if name == "a" else ("col", "row")
    step = f"p.{name}_{step}"
    kind, lines = "i32", "line"
    if load.across and load.vec4:
        last = f"p.{load.lines} - 4"
    elif load.across:
        kind, lines = "vec4<i32>", "line + vec4<i32>(0, 1, 2, 3)"
        last = f"vec4<i32>({last})"
    place = f"base + min({lines}, {last}) * p.{name}_{line} + own * {step}"
    if load.vec4:
        # In vec4 of the buffer, of which all parts are multiples.
        place = f"({place}) >> 2u"
        from_k = f"k * ({step} >> 2u)" if load.across else "(k >> 2u)"
        value = f"get_{name}4(at + {from_k})"
    else:
        each = [f"at[{i}]" if load.across else f"at + {i} * {step}" for i in range(4)]
        gets = ", ".join(f"get_{name}({one} + k * {step})" for one in each)
        value = f"vec4({gets})"
    return "\n".join(
        [
            f"alias {name.upper()}Place = {kind};",
            function(
                f"{name}_place(base: i32, line: i32, own: i32) -> {kind}",
                [f"return {place};"],
            ),
            function(
                f"{name}_load(at: {kind}, k: i32) -> vec4<E>",
                [f"return vec4<E>({value});"],
            ),
        ]
    )
