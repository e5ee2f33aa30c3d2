"""Tiles of GPU kernels: how many results a workgroup and an invocation compute.

Enters: the size of a product, and what the adapter allows. Leaves: the tiles that
could compute it, the most likely first, and the code and constants of `tile.wgsl` that
depend on a tile. Every tile is right for every size: what is beyond the operands counts
as zero.

The tiles keep to what WebGPU guarantees everywhere, 256 invocations and 16 KiB of
workgroup memory, but for one that needs more memory. Their order comes from a model of
the cost, not from measurements: see `tiles_for`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from ...plan import wgsl_text
from ...plan.caps import Caps
from ...plan.traced_int import ranked
from .product import function

# Invocations of a wave: 64 on AMD, 32 elsewhere, where one wave is half of these.
_WAVE = 64
# Instructions around a load: its address, its edge, and putting it in workgroup memory.
# Counted in what RADV makes of tile.wgsl (`python -m benchmarks isa`).
_LOAD = 25
# The time of a wave that has a SIMD for itself, of which it waits a third, in that of
# one among many, halved.
_ALONE_HALVES = 3
# Forms that are offered to autotune, the default included.
OFFERED = 4


@dataclass(frozen=True)
class Tile:
    """`rows` x `columns` results of a workgroup, `high` x `wide` of an invocation, from
    slices of `depth` k, all multiples of 4."""

    rows: int
    columns: int
    high: int
    wide: int
    depth: int

    @property
    def name(self) -> str:
        return f"tiled {self.rows}x{self.columns}x{self.depth}/{self.high}x{self.wide}"

    @property
    def invocations(self) -> int:
        return (self.rows // self.high) * (self.columns // self.wide)

    @property
    def memory(self) -> int:
        """Bytes of workgroup memory: a vec4 of padding per row of A, and per k of B."""
        a = self.rows * (self.depth // 4 + 1)
        return 16 * (a + self.depth * (self.columns // 4 + 1))

    @property
    def a_loads(self) -> int:
        """The vectors that an invocation loads of a slice of A."""
        return self.rows * self.depth // 4 // self.invocations

    @property
    def b_loads(self) -> int:
        return self.columns * self.depth // 4 // self.invocations

    @property
    def waves(self) -> int:
        return -(-self.invocations // _WAVE)

    @property
    def instructions(self) -> int:
        """Of an invocation, for 16 k: its multiply-adds, and its share of loads. (No
        tile reads more than 0.32 bytes of storage for a multiply-add, which caches of
        GPUs give.)"""
        loads = self.a_loads + self.b_loads
        return 16 * self.high * self.wide + 16 * _LOAD * loads // self.depth

    def fits(self, caps: Caps) -> bool:
        return (
            self.invocations <= caps.max_invocations
            and self.memory <= caps.workgroup_memory
        )

    def grid(self, m: int, n: int) -> dict[str, int]:
        """The tiles of a matrix of m x n results, as parameters of `tile.wgsl`."""
        return {"tiles_m": -(-m // self.rows), "tiles_n": -(-n // self.columns)}

    def count(self, batch: int, m: int, n: int) -> int:
        return batch * math.prod(self.grid(m, n).values())


TILES = (
    Tile(128, 128, 8, 8, 16),
    Tile(128, 128, 8, 8, 8),
    Tile(64, 64, 8, 4, 16),
    Tile(64, 64, 4, 4, 16),
    Tile(32, 64, 4, 4, 16),
    Tile(32, 32, 4, 4, 16),
    Tile(16, 64, 4, 4, 16),
    Tile(64, 16, 4, 4, 16),
)
BY_NAME = {tile.name: tile for tile in TILES}


def tiles_for(caps: Caps, batch: int, m: int, n: int) -> list[str]:
    """Names of the tiles for a product of [m, k] and [k, n], the most likely first.

    The cost of a tile is the time of a SIMD: the waves that it runs, times what a wave
    computes for one k. Large tiles compute with the fewest instructions, but of them
    there may be too few waves for all SIMDs. The number of a device's SIMDs is a guess
    (`Caps.simds`), so that a last round which is not full counts half. A single wave
    waits for its loads; several hide each other's.
    """

    def cost(tile: Tile) -> int:
        # In halves of a wave, times the number of SIMDs.
        halves = 2 * tile.count(batch, m, n) * tile.waves + caps.simds
        return max(halves, _ALONE_HALVES * caps.simds) * tile.instructions

    fitting = [tile for tile in TILES if tile.fits(caps)]
    # A CPU adapter, for which tiles are not meant, gets one.
    offered = 1 if caps.is_cpu else OFFERED
    return [tile.name for tile in ranked(fitting, cost)[:offered]]


@functools.cache
def tile_code(tile: Tile) -> str:
    """tile.wgsl, and its functions that are unrolled: registers have no index."""
    counts = {"a": tile.a_loads, "b": tile.b_loads}
    # The i-th vector that an invocation loads of an operand.
    loads = [
        (name, i, f"id + {i * tile.invocations}")
        for name, count in counts.items()
        for i in range(count)
    ]
    lines = {"a": "row + a_row", "b": "column + b_column"}
    find = [
        f"places.{x}[{i}] = {x}_place({x}, {lines[x]}({at}));" for x, i, at in loads
    ]
    fetch = [
        f"share.{x}[{i}] = {x}_load((*places).{x}[{i}], k + {x}_k({at}));"
        for x, i, at in loads
    ]
    keep = [f"keep_{x}({at}, (*share).{x}[{i}]);" for x, i, at in loads]
    held = ", ".join(
        f"{x}: array<{x.upper()}Place, {count}>" for x, count in counts.items()
    )
    matrices = "a: i32, b: i32, row: i32, column: i32, id: i32"
    places = "places: ptr<function, Places>"
    return "\n".join(
        [
            f"struct Places {{ {held} }}",
            function(
                f"find({matrices}) -> Places",
                ["var places: Places;", *find, "return places;"],
            ),
            function(
                f"fetch({places}, id: i32, k: i32) -> Share",
                ["var share: Share;", *fetch, "return share;"],
            ),
            function("keep(share: ptr<function, Share>, id: i32)", keep),
            _sums_code(tile),
            wgsl_text.load("tile"),
        ]
    )


def _sums_code(tile: Tile) -> str:
    """accumulate (four k) and store_sums.

    The distance between an invocation's rows, and between its quads of columns, is the
    number of invocations side by side, so that neighbours read and write neighbours.
    """
    quads, rows = range(tile.wide // 4), range(tile.high)
    sums = [(row, quad) for row in rows for quad in quads]
    held = {(row, quad): f"(*sums)[{i}]" for i, (row, quad) in enumerate(sums)}
    accumulate = [
        *(
            f"let b{k}_{quad} = b_slice[i * 4 + {k}][low + {quad} * LOWS];"
            for k in range(4)
            for quad in quads
        ),
        *(f"let a{row} = a_slice[high + {row} * HIGHS][i];" for row in rows),
        *(
            f"{held[row, quad]} += a{row}[{k}] * b{k}_{quad};"
            for k in range(4)
            for row, quad in sums
        ),
    ]
    stores = [
        f"store_quad(batch, row + {row} * HIGHS, column + {quad * 4} * LOWS,"
        f" {held[row, quad]});"
        for row, quad in sums
    ]
    registers = "sums: ptr<function, Sums>"
    return "\n".join(
        [
            function(
                f"accumulate(i: i32, high: i32, low: i32, {registers})", accumulate
            ),
            function(
                f"store_sums(batch: i32, row: i32, column: i32, {registers})", stores
            ),
        ]
    )


def tile_consts(tile: Tile, a_deep: bool, b_deep: bool) -> dict[str, int | bool]:
    """The constants of `tile.wgsl`; `deep`: neighbours in an operand's memory are
    neighbours along k."""
    return {
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "HIGH": tile.high,
        "WIDE": tile.wide,
        "DEPTH": tile.depth,
        "A_DEEP": a_deep,
        "B_DEEP": b_deep,
    }
