"""The text of tiled products: what is supplied to tile.wgsl, unrolled for a tile.

Enters: a tile, and how the operands are loaded. Leaves: WGSL and its constants.
Registers have no index, so whatever an invocation holds several of is written out.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ...ir.dtypes import Storage
from ...plan import wgsl_text
from ...plan.caps import Caps
from ...plan.recorder import Tensor
from ...plan.wgsl_text import Const
from .gpu_tiles import Tile
from .operand_loads import Load
from .product import function


def element(caps: Caps, a: Tensor) -> str:
    """What a tile's slices hold of operands like `a`. Halves become f32 as they are
    loaded, unless sums may be f16."""
    if not a.dtype.is_float:
        return "i32"
    is_half = a.storage is Storage.F16 and caps.f16_accumulate
    return "f16" if is_half else "f32"


@dataclass(frozen=True)
class TileText:
    """tile.wgsl for a tile. Products of f16 are summed in f16 over a slice, and these
    sums in f32; other sums are of the elements' type."""

    tile: Tile
    element: str  # of slices: f32, f16 or i32
    k: int
    a: Load
    b: Load | None  # None: the kernel has its own b_load, of four columns of one k

    @property
    def is_short(self) -> bool:
        """Whether there is no slice without k beyond the operands'."""
        return self.k < self.tile.depth

    @property
    def is_b_deep(self) -> bool:
        return self.b is not None and self.b.deep

    @property
    def consts(self) -> dict[str, Const]:
        return {
            "E": self.element,
            "S": "f32" if self.element == "f16" else self.element,
            "ROWS": self.tile.rows,
            "COLUMNS": self.tile.columns,
            "HIGH": self.tile.high,
            "WIDE": self.tile.wide,
            "DEPTH": self.tile.depth,
            "SPLIT": self.tile.split,
            "IS_SHORT": self.is_short,
            "IS_WHOLE": self.k % self.tile.depth == 0,
            "A_DEEP": self.a.deep,
            "B_DEEP": self.is_b_deep,
        }

    @property
    def code(self) -> str:
        loads = [load for load in (self.a, self.b) if load is not None]
        names = "" if self.is_short else "".join(load.name for load in loads)
        return "\n".join(
            [
                *(load.code if self.is_short else load.slice_code for load in loads),
                _loads_code(self.tile, names, self.is_b_deep),
                _sums_code(self.tile, self.element == "f16", self.is_b_deep),
                wgsl_text.load("tile"),
            ]
        )


@functools.cache
def _loads_code(tile: Tile, slices: str, is_b_deep: bool) -> str:
    """find, fetch, trim and keep, of operands that are loaded by `Load.slice_code` if
    they are named in `slices`, else by `Load.code`."""
    counts = {"a": tile.a_loads, "b": tile.b_loads}
    # The k of a load's elements, from the first on.
    four = "vec4<i32>(0, 1, 2, 3)"
    steps = {"a": four, "b": four if is_b_deep else "vec4<i32>()"}
    find, fetch, trim, keep = [], [], [], []
    for x, line in {"a": "row + a_row", "b": "column + b_column"}.items():
        for i in range(counts[x]):
            at = f"id + {i * tile.invocations}"
            line_, own = f"{line}({at})", f"{x}_k({at})"
            if x in slices:
                find.append(f"places.{x}[{i}] = {x}_place({x}, {line_}, {own});")
                fetch.append(f"share.{x}[{i}] = {x}_load((*places).{x}[{i}], k);")
            else:
                find.append(f"places.{x}[{i}] = {x}_place({x}, {line_});")
                load = f"{x}_load((*places).{x}[{i}], k + {own})"
                fetch.append(f"share.{x}[{i}] = {load};")
            held = f"(*share).{x}[{i}]"
            is_new = f"{own} + {steps[x]} >= vec4<i32>(count)"
            trim.append(f"{held} = select(vec4<E>(), {held}, {is_new});")
            keep.append(f"keep_{x}({at}, {held});")
    places = ", ".join(
        f"{x}: array<{x.upper()}Place, {count}>" for x, count in counts.items()
    )
    return "\n".join(
        [
            f"struct Places {{ {places} }}",
            function(
                "find(a: i32, b: i32, row: i32, column: i32, id: i32) -> Places",
                ["var places: Places;", *find, "return places;"],
            ),
            function(
                "fetch(places: ptr<function, Places>, id: i32, k: i32) -> Share",
                ["var share: Share;", *fetch, "return share;"],
            ),
            function("trim(share: ptr<function, Share>, id: i32, count: i32)", trim),
            function("keep(share: ptr<function, Share>, id: i32)", keep),
        ]
    )


@functools.cache
def _sums_code(tile: Tile, is_half: bool, is_b_deep: bool) -> str:
    """b_slice and keep_b, multiply (one slice) and store_sums.

    The distance between an invocation's rows, and between its quads of columns, is the
    number of invocations side by side, so that neighbours read and write neighbours.
    """
    sums = [(row, quad) for row in range(tile.high) for quad in range(tile.wide // 4)]
    held = {(row, quad): f"(*sums)[{i}]" for i, (row, quad) in enumerate(sums)}
    stores = [
        f"store_quad(batch, row + {row} * HIGHS, column + {quad * 4} * LOWS, {name});"
        for (row, quad), name in held.items()
    ]
    rows = range(tile.high)
    reads = [f"let a{row} = a_slice[split][{row}][high][i];" for row in rows]
    make = _along_k if is_b_deep else _across_k
    parts = make(tile, held, is_half)
    loop = [f"  {line}" for line in (*reads, *parts.each)]
    registers = "sums: ptr<function, Sums>"
    return "\n".join(
        [
            parts.slice_b,
            function(
                f"multiply(split: u32, high: u32, low: u32, {registers})",
                [
                    *parts.first,
                    *("for (var i = 0; i < SPLIT_DEEP; i++) {", *loop, "}"),
                    *parts.last,
                ],
            ),
            _add_splits(tile, len(sums)),
            function(
                f"store_sums(batch: i32, row: i32, column: i32, {registers})", stores
            ),
        ]
    )


def _add_splits(tile: Tile, count: int) -> str:
    """add_splits: the first split gets the sums of all, one register after the other,
    which takes the least memory."""
    signature = "add_splits(id: i32, sums: ptr<function, Sums>)"
    if tile.split == 1:
        return function(signature, [])
    apart = tile.invocations // tile.split
    body = []
    for i in range(count):
        others = " + ".join(f"handed[id + {n * apart}]" for n in range(1, tile.split))
        body += [
            *("workgroupBarrier();", f"handed[id] = (*sums)[{i}];"),
            "workgroupBarrier();",
            f"if (id < {apart}) {{ (*sums)[{i}] += {others}; }}",
        ]
    return f"var<workgroup> handed: array<vec4<S>, WG>;\n{function(signature, body)}"


@dataclass(frozen=True)
class _Multiply:
    """The parts of `multiply` that depend on how B is kept."""

    slice_b: str
    first: list[str]
    each: list[str]  # of four k, a{row} being those of a row
    last: list[str]


def _across_k(tile: Tile, held: dict[tuple[int, int], str], is_half: bool) -> _Multiply:
    """B's slice has quads of columns of one k; vectors are along the columns."""
    slice_b = """const SPLIT_K = DEPTH / SPLIT;
alias BSlice = array<array<array<array<vec4<E>, LOWS>, ACROSS>, SPLIT_K>, SPLIT>;
fn keep_b(i: i32, v: vec4<E>) {
  let quad = i % QUADS;
  let k = i / QUADS;
  b_slice[k / SPLIT_K][k % SPLIT_K][quad / LOWS][quad % LOWS] = v;
}"""
    reads = [
        f"let b{k}_{quad} = b_slice[split][i * 4 + {k}][{quad}][low];"
        for k in range(4)
        for quad in range(tile.wide // 4)
    ]
    runs = {at: f"run{at[0]}_{at[1]}" for at in held} if is_half else held
    # One row after the other, whose registers are then free for the next reads; for
    # pairs of halves, compilers do better with one k after the other.
    order = [(k, *at) for at in runs for k in range(4)]
    if is_half:
        order.sort()
    products = [
        f"{runs[row, quad]} += a{row}[{k}] * b{k}_{quad};" for k, row, quad in order
    ]
    return _Multiply(
        slice_b,
        [f"var {run}: vec4<E>;" for run in runs.values() if is_half],
        reads + products,
        [f"{held[at]} += vec4<S>({run});" for at, run in runs.items() if is_half],
    )


def _along_k(tile: Tile, held: dict[tuple[int, int], str], is_half: bool) -> _Multiply:
    """B's slice has four k of one column. Vectors of halves are along k: pairs of even
    and odd k are summed apart."""
    slice_b = """alias BLines = array<array<array<vec4<E>, PITCH>, LOWS>, WIDE>;
alias BSlice = array<BLines, SPLIT>;
fn keep_b(i: i32, v: vec4<E>) {
  let column = b_column(i);
  let quad = column / 4;
  let wide = quad / LOWS * 4 + column % 4;
  let four = i % DEEP;
  b_slice[four / SPLIT_DEEP][wide][quad % LOWS][four % SPLIT_DEEP] = v;
}"""
    columns = range(tile.wide)
    reads = [f"let b{column} = b_slice[split][{column}][low][i];" for column in columns]
    if not is_half:
        products = []
        for (row, quad), total in held.items():
            for k in range(4):
                four = ", ".join(f"b{quad * 4 + i}[{k}]" for i in range(4))
                products.append(f"{total} += a{row}[{k}] * vec4<E>({four});")
        return _Multiply(slice_b, [], reads + products, [])
    runs = {
        (row, column): f"run{row}_{column}"
        for row in range(tile.high)
        for column in columns
    }
    products = [
        f"{run} += a{row}.{pair} * b{column}.{pair};"
        for pair in ("xy", "zw")
        for (row, column), run in runs.items()
    ]
    last = [
        f"{held[row, column // 4]}[{column % 4}] += S({run}.{half});"
        for (row, column), run in runs.items()
        for half in "xy"
    ]
    first = [f"var {run}: vec2<E>;" for run in runs.values()]
    return _Multiply(slice_b, first, reads + products, last)
