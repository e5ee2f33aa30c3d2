"""Tiles of GPU kernels: how many results a workgroup and an invocation compute.

Enters: the size of a product, and what the adapter allows. Leaves: the tiles that
could compute it, the most likely first, and the code and constants of `tile.wgsl` that
depend on a tile. Every tile is right for every size: what is beyond the operands counts
as zero.

The tiles keep to what WebGPU guarantees everywhere: 256 invocations and 16 KiB of
workgroup memory. Their order comes from a model of the cost, not from measurements: see
`tiles_for`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from ...plan import wgsl_text
from ...plan.caps import Caps
from .product import function

# Workgroups that give a GPU full occupancy: small GPUs run 8 to 32 at once, large ones
# about 100.
BUSY = 96
# How much longer than from workgroup memory a read from storage takes, caches and all.
_STORAGE = 8
# Forms that are offered to autotune, the default included.
OFFERED = 4


@dataclass(frozen=True)
class Tile:
    """`rows` x `columns` results of a workgroup, `high` x `wide` of an invocation, from
    slices of `depth` k. All but depth are multiples of 4."""

    rows: int
    columns: int
    high: int
    wide: int
    depth: int

    @property
    def name(self) -> str:
        return f"tiled {self.rows}x{self.columns}/{self.high}x{self.wide}"

    @property
    def invocations(self) -> int:
        return (self.rows // self.high) * (self.columns // self.wide)

    @property
    def memory(self) -> int:
        """Bytes of workgroup memory: a vec4 of padding per k and operand."""
        return self.depth * (self.rows // 4 + self.columns // 4 + 2) * 16

    @property
    def reads(self) -> float:
        """What a multiply-add reads, in reads of a value from workgroup memory: its
        share of the invocation's rows and columns from there, and of the workgroup's
        from storage."""
        from_memory = 1 / self.high + 1 / self.wide
        return from_memory + _STORAGE * (1 / self.rows + 1 / self.columns)

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
    Tile(128, 128, 8, 8, 8),
    Tile(64, 128, 8, 8, 8),
    Tile(64, 64, 8, 4, 16),
    Tile(64, 64, 4, 4, 16),
    Tile(32, 64, 4, 4, 16),
    Tile(32, 32, 4, 4, 16),
    Tile(16, 64, 4, 4, 16),
    Tile(8, 128, 4, 4, 16),
    Tile(64, 16, 4, 4, 16),
)
BY_NAME = {tile.name: tile for tile in TILES}


def tiles_for(caps: Caps, batch: int, m: int, n: int) -> list[str]:
    """Names of the tiles for a product of [m, k] and [k, n], the most likely first.

    The cost of a tile is the number of results computed, those beyond the edges
    included, times the reads of a multiply-add: large tiles are good for large
    products, low ones for few rows. Low occupancy raises it in proportion: with half
    of the workgroups that a GPU can run, twice the time.
    """

    def cost(tile: Tile) -> float:
        groups = tile.count(batch, m, n)
        return groups * tile.rows * tile.columns * tile.reads * idle(groups)

    fitting = [tile for tile in TILES if tile.fits(caps)]
    # A CPU adapter, for which tiles are not meant, gets one.
    offered = 1 if caps.is_cpu else OFFERED
    return [tile.name for tile in sorted(fitting, key=cost)[:offered]]


def idle(groups: int) -> float:
    """The factor by which low occupancy, of so few workgroups, raises the time."""
    return max(1.0, BUSY / max(groups, 1))


@functools.cache
def tile_code(tile: Tile) -> str:
    """tile.wgsl, and `accumulate`, unrolled because registers have no index.

    The distance between an invocation's quads of rows, and of columns, is the number of
    invocations side by side, so that neighbours read and write neighbouring quads.
    """
    downs, acrosses = tile.high // 4, tile.wide // 4
    body = []
    for q in range(downs):
        body.append(f"let a{q} = a_slice[i * A_PITCH + high + {q} * HIGHS];")
    for q in range(acrosses):
        body.append(f"let b{q} = b_slice[i * B_PITCH + low + {q} * LOWS];")
    for row in range(tile.high):
        for q in range(acrosses):
            value = f"a{row // 4}[{row % 4}] * b{q}"
            body.append(f"(*c)[{row * acrosses + q}] += {value};")
    signature = "accumulate(i: i32, high: i32, low: i32, c: ptr<function, Block>)"
    return f"{function(signature, body)}\n{wgsl_text.load('tile')}"


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
