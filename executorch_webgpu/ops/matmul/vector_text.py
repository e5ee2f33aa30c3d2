"""The unrolled functions of matmul_vector.wgsl, because registers have no index.

Enters: a form, and how each operand is loaded. Leaves: WGSL. Invocations take k in
slices: four k of floats, which are loaded along k or across it, or a few words of
packed weights. Loads that cannot miss are not checked: those of the last iteration, of
which some may be beyond the end, are in a function of their own.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Protocol

from ...plan.recorder import Tensor
from .operand_loads import Load, load_b
from .product import Codes, function

# Bytes of workgroup memory, per invocation, for sums on their way to be added up: more
# would lower the occupancy.
_MEMORY = 64
# Vectors of B that an invocation asks for before it uses the first.
_AHEAD = 4
# The same of A, where B is packed: loads of B are few.
_A_AHEAD = 16


@dataclass(frozen=True)
class Vector:
    """The size of a workgroup, and how many of its invocations split a column's k: a
    power of two, and a quarter of the workgroup at most."""

    workgroup: int
    shares: int

    @property
    def name(self) -> str:
        return f"vector {self.workgroup}/{self.shares}"

    @property
    def units(self) -> int:
        """Invocations side by side, each with columns of its own."""
        return self.workgroup // self.shares


class LoadsOfB(Protocol):
    """How B is loaded."""

    @property
    def rows(self) -> int:
        """Rows of A that a vector of B is multiplied with: a power of two."""

    @property
    def vec4(self) -> bool:
        """Whether a load is one vec4 of the buffer."""

    @property
    def across(self) -> bool:
        """Whether an invocation has four neighbouring columns, whose sums are a vec4,
        or else `columns` of them, UNITS apart."""

    @property
    def columns(self) -> int: ...

    @property
    def slices(self) -> int:
        """Slices of all of k."""

    @property
    def ahead(self) -> int:
        """Slices in an iteration."""

    @property
    def code(self) -> str: ...

    def find(self) -> list[str]:
        """Where the loads of the columns start."""

    def has_rest(self, a: Load) -> bool:
        """Whether `multiply_add` needs all its slices, and others are left."""

    def step(self, a: Load, checked: bool) -> list[str]:
        """Loads and multiplies `ahead` slices, SHARES apart."""


@dataclass(frozen=True)
class FloatB:
    """Four k of a column, or four columns of a k, at a time."""

    tensor: Tensor
    rows: int

    @functools.cached_property
    def load(self) -> Load:
        return load_b(self.tensor)

    @property
    def vec4(self) -> bool:
        return self.load.vec4

    @property
    def across(self) -> bool:
        return self.load.across

    @property
    def columns(self) -> int:
        """One load of A serves all of them."""
        return 4 if self.across else 1 if self.rows <= 2 else 2

    @property
    def slices(self) -> int:
        return -(-self.tensor.shape[-2] // 4)

    @property
    def ahead(self) -> int:
        return 1 if self.rows > 8 else max(1, _AHEAD // self.columns)

    @property
    def code(self) -> str:
        return self.load.code

    def find(self) -> list[str]:
        columns = [0] if self.across else range(self.columns)
        return [f"b_place(b, column + {c} * UNITS)" for c in columns]

    def has_rest(self, a: Load) -> bool:
        return self.ahead > 1 and a.vec4 and self.vec4

    def step(self, a: Load, checked: bool) -> list[str]:
        checked = checked or not (a.vec4 and self.vec4)
        loads, products = [], []
        for t in range(self.ahead):
            slice_ = f"(slice + {t} * SHARES)"
            for c in range(self.columns):
                loads.append(f"let b{t}_{c} = {self._loaded(slice_, c, checked)};")
            for r in range(self.rows):
                value = f"a_load((*places).a[{r}], 4 * {slice_})"
                if not checked:
                    value = f"get_a4(((*places).a[{r}] >> 2u) + {slice_})"
                products.append(f"let a{t}_{r} = {value};")
                products += self._products(t, r)
        return [*loads, *products]

    def _loaded(self, slice_: str, c: int, checked: bool) -> str:
        """The c-th vector of a slice: of a column or, if `across`, of a k."""
        place, k = f"(*places).b[{c}]", f"4 * {slice_}"
        if self.across:
            place, k = "(*places).b[0]", f"{k} + {c}"
        if checked:
            return f"b_load({place}, {k})"
        if self.across:
            return f"get_b4(({place} + ({k}) * p.b_row) >> 2u)"
        return f"get_b4(({place} >> 2u) + {slice_})"

    def _products(self, t: int, r: int) -> list[str]:
        if self.across:
            return [f"(*sums)[{r}] += a{t}_{r}[{c}] * b{t}_{c};" for c in range(4)]
        each = [(c, f"(*sums)[{r * self.columns + c}]") for c in range(self.columns)]
        return [f"{of} = plus_dot({of}, a{t}_{r}, b{t}_{c});" for c, of in each]


@dataclass(frozen=True)
class CodesB:
    """Words of packed weights, each with codes of several k; four columns at a time."""

    codes: Codes
    rows: int
    vec4: bool = True
    across: bool = True
    columns: int = 4
    ahead: int = 1

    @property
    def fills_words(self) -> bool:
        """Whether every code has a k, so that slices of A are aligned, too."""
        layout = self.codes.layout
        return layout.group % layout.per_word == 0 == layout.depth % layout.group

    @property
    def words(self) -> int:
        """Words along k of a slice, all of one group."""
        most = max(1, _AHEAD // max(1, self.rows // 2))
        return next(n for n in (4, 2, 1) if n <= most and self._in_group % n == 0)

    @property
    def _in_group(self) -> int:
        return self.codes.layout.words

    @property
    def slices(self) -> int:
        return self.codes.layout.groups * self._in_group // self.words

    @property
    def code(self) -> str:
        return "alias BPlace = i32;"

    def find(self) -> list[str]:
        return ["min(column / 4, p.columns - 1)"]

    def has_rest(self, a: Load) -> bool:
        return False

    def step(self, a: Load, checked: bool) -> list[str]:
        """Each four k of the slice are dequantized once, for all rows."""
        layout = self.codes.layout
        per_group = self._in_group // self.words
        group = "0" if layout.groups == 1 else f"slice / {per_group}"
        body = [
            f"let group = {group};",
            "let scale = get_s4(group * p.columns + (*places).b[0]);",
            "let offset = offset4(group * p.columns + (*places).b[0], scale);",
            f"let inside = (slice - group * {per_group}) * {self._depth};",
        ]
        for i in range(self.words):
            at = f"(slice * {self.words} + {i}) * p.columns + (*places).b[0]"
            body.append(f"let words{i} = bitcast<vec4<u32>>(get_b4({at}));")
        fours = layout.per_word // 4
        together = max(1, _A_AHEAD // self.rows)
        for first in range(0, self.words * fours, together):
            each = range(first, min(first + together, self.words * fours))
            for q in each:
                body += [
                    f"let a{q}_{r} = {self._a_loaded(a, r, q)};"
                    for r in range(self.rows)
                ]
            for q in each:
                body += self._products(q)
        return body

    @property
    def _depth(self) -> int:
        """k of a slice."""
        return self.words * self.codes.layout.per_word

    def _a_loaded(self, a: Load, row: int, quad: int) -> str:
        layout, place = self.codes.layout, f"(*places).a[{row}]"
        if a.vec4:
            return f"get_a4(({place} >> 2u) + slice * {self._depth // 4} + {quad})"
        start = f"group * {layout.group} + inside + {4 * quad}"
        value = f"a_load({place}, {start})"
        # What fills up the last word of a group has codes, but no k.
        left = f"vec4<i32>({layout.group - 4 * quad} - inside)"
        return f"select(vec4<f32>(), {value}, vec4<i32>(0, 1, 2, 3) < {left})"

    def _products(self, quad: int) -> list[str]:
        fours = self.codes.layout.per_word // 4
        body = []
        for c in range(4):
            code = f"codes(words{quad // fours}[{c}], {quad % fours})"
            factor, term = f"vec4<f32>(scale[{c}])", f"vec4<f32>(offset[{c}])"
            body.append(f"let b{quad}_{c} = fma({code}, {factor}, {term});")
        for r in range(self.rows):
            sums = ", ".join(
                f"plus_dot((*sums)[{r}][{c}], a{quad}_{r}, b{quad}_{c})"
                for c in range(4)
            )
            body.append(f"(*sums)[{r}] = vec4<f32>({sums});")
        return body


@dataclass(frozen=True)
class Work:
    """What the invocations of a form do."""

    form: Vector
    a: Load
    b: LoadsOfB

    @property
    def rows(self) -> int:
        return self.b.rows

    @property
    def columns(self) -> int:
        """Columns of a workgroup."""
        return self.form.units * self.b.columns

    @property
    def sums(self) -> int:
        """Sums of a row in an invocation: scalars, or one vec4."""
        return 1 if self.b.across else self.b.columns

    @property
    def together(self) -> int:
        """Rows whose sums are added up at once."""
        return min(self.rows, _MEMORY // (4 * self.b.columns), self.form.shares)

    @property
    def outputs(self) -> int:
        """Quads of columns that are added up at once."""
        return self.together * self.columns // 4


def unrolled(work: Work) -> str:
    """find, multiply_add, multiply_rest and add_up, and what they call."""
    a, b, rows = work.a, work.b, work.rows
    starts = b.find()
    find = [
        "var places: Places;",
        *(f"places.a[{r}] = a_place(a, row + {r});" for r in range(rows)),
        *(f"places.b[{c}] = {start};" for c, start in enumerate(starts)),
        "return places;",
    ]
    add_up = [
        line for first in range(0, rows, work.together) for line in _add_up(work, first)
    ]
    kind = "vec4<f32>" if b.across else "f32"
    arguments = "places: ptr<function, Places>, slice: i32, sums: ptr<function, Sums>"
    ids = "batch: i32, row: i32, column: i32, id: i32, share: i32, unit: i32"
    return "\n".join(
        [
            a.code,
            b.code,
            f"alias Sums = array<{kind}, {rows * work.sums}>;",
            f"alias APlaces = array<APlace, {rows}>;",
            f"alias BPlaces = array<BPlace, {len(starts)}>;",
            "struct Places { a: APlaces, b: BPlaces }",
            function("find(a: i32, b: i32, row: i32, column: i32) -> Places", find),
            function(f"multiply_add({arguments})", b.step(a, checked=False)),
            function(
                f"multiply_rest({arguments})",
                b.step(a, checked=True) if b.has_rest(a) else [],
            ),
            function(f"add_up({ids}, sums: ptr<function, Sums>)", add_up),
        ]
    )


def _add_up(work: Work, first: int) -> list[str]:
    """Adds up the sums of the rows from `first` on, and stores them."""
    quads = work.columns // 4
    body = ["workgroupBarrier();"] if first else []
    for r in range(work.together):
        for c in range(work.sums):
            at = f"share * OUTPUTS + {r * quads}"
            value = f"(*sums)[{(first + r) * work.sums + c}]"
            if work.b.across:
                body.append(f"partial[{at} + unit] = {value};")
            else:
                own = f"(unit + {c} * UNITS)"
                body.append(f"partial[{at} + {own} / 4][{own} % 4] = {value};")
    left = work.form.shares
    while left > 1:
        # So many at once are read without waiting for each.
        radix = left if left <= 16 else 8
        left //= radix
        size = left * work.outputs
        others = " + ".join(f"partial[id + {i * size}]" for i in range(1, radix))
        body += [
            "workgroupBarrier();",
            f"if (id < {size}) {{ partial[id] += {others}; }}",
        ]
    return [
        *body,
        f"store(batch, row + {first} + id / {quads}, column + id % {quads} * 4, id);",
    ]
