"""Tiles of GPU kernels: how many results a workgroup and an invocation compute.

Enters: the size of a product, and what the adapter allows. Leaves: the tiles that
could compute it, the most likely first (tile_text.py has their code). Every tile is
right for every size: what is beyond the operands counts as zero.

The tiles keep to what WebGPU guarantees everywhere, 256 invocations and 16 KiB of
workgroup memory, but for three that need more memory. Their order comes from a model of
the cost, not from measurements: see `tiles_for`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...plan.caps import Caps
from ...plan.traced_int import ranked, rung

# Invocations of a wave: 64 on AMD, 32 elsewhere, where one wave is half of these.
_WAVE = 64
# Instructions around a load: its address, its edge, and putting it in workgroup memory;
# and before and after the loop, for an invocation and for every one it shares k with.
# Counted in what RADV makes of tile.wgsl (`python -m benchmarks isa`).
_LOAD = 10
_AROUND = 50
_ADDED = 45
# The time of a wave that has a SIMD for itself, of which it waits a third, in that of
# one among many, in tenths; and of a last round that is not full.
_ALONE = 15
_LAST = 4
# Forms that are offered to autotune, the default included.
OFFERED = 4


@dataclass(frozen=True)
class Tile:
    """`rows` x `columns` results of a workgroup, `high` x `wide` of an invocation, from
    slices of `depth` k, all multiples of 4, in each of which `split` invocations share
    the k of their results."""

    rows: int
    columns: int
    high: int
    wide: int
    depth: int
    split: int = 1

    @property
    def name(self) -> str:
        name = f"tiled {self.rows}x{self.columns}x{self.depth}/{self.high}x{self.wide}"
        return f"{name}/{self.split}" if self.split > 1 else name

    @property
    def invocations(self) -> int:
        return (self.rows // self.high) * (self.columns // self.wide) * self.split

    @property
    def memory(self) -> int:
        """Bytes of workgroup memory, with a vec4 of padding per row and column, and one
        of sums per invocation if these are handed over."""
        slices = (self.rows + self.columns) * (self.depth // 4 + self.split)
        return 16 * (slices + (self.invocations if self.split > 1 else 0))

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

    def instructions(self, k: int, b_load: int) -> int:
        """Of an invocation: its multiply-adds, and its share of loads, those of B by
        `b_load` instructions. (No tile reads more than 0.38 bytes of storage for a
        multiply-add, which caches of GPUs give.)"""
        loads = _LOAD * self.a_loads + b_load * self.b_loads
        products = self.high * self.wide * self.depth // self.split
        slices = -(-k // self.depth)
        return slices * (products + loads) + _AROUND + _ADDED * self.split

    def fits(self, caps: Caps) -> bool:
        return (
            self.invocations <= caps.max_invocations
            and self.memory <= caps.workgroup_memory
        )

    def grid(self, m: int, n: int) -> dict[str, int]:
        """The tiles of a matrix of m x n results, as parameters of `tile.wgsl`.
        Neighbours share their part of the larger operand, so that it is read once: the
        smaller is likely to stay in a cache."""
        tiles = -(-m // self.rows), -(-n // self.columns)
        rows_first = rung(m) < rung(n)
        first, last = tiles if rows_first else tiles[::-1]
        return {"rows_first": rows_first, "tiles_first": first, "tiles_last": last}

    def count(self, batch: int, m: int, n: int) -> int:
        return batch * -(-m // self.rows) * -(-n // self.columns)


TILES = (
    Tile(128, 128, 8, 8, 16),
    Tile(128, 128, 8, 8, 8),
    Tile(64, 64, 8, 4, 16),
    Tile(64, 64, 4, 4, 16),
    Tile(32, 64, 4, 4, 16),
    Tile(32, 32, 4, 4, 16),
    Tile(16, 64, 4, 4, 16),
    Tile(64, 16, 4, 4, 16),
    Tile(32, 32, 4, 4, 32, split=4),
    Tile(64, 16, 4, 4, 64, split=4),
    Tile(32, 16, 4, 4, 64, split=8),
)
BY_NAME = {tile.name: tile for tile in TILES}


def simd_time(caps: Caps, waves: int, instructions: int) -> int:
    """What the SIMDs compute of a dispatch, in tenths of an instruction of a wave.

    The number of a device's SIMDs is a guess (`Caps.simds`), so that a last round which
    is not full counts less than half. A single wave waits for its loads; several hide
    each other's.
    """
    simds = 1 if caps.is_cpu else caps.simds
    return max(10 * waves + _LAST * simds, _ALONE * simds) * instructions


def tiles_for(
    caps: Caps,
    batch: int,
    shape: tuple[int, int, int],
    element: str,
    b_load: int = _LOAD,
) -> list[str]:
    """Names of the tiles for a product of [m, k] and [k, n], `shape` being m, n and k,
    the most likely first; `element` is what slices hold (tile_text.py).

    The cost of a tile is the time of a SIMD: the waves that it runs, times the
    instructions of a wave. Large tiles compute with the fewest, but of them there may
    be too few waves for all SIMDs; tiles that split k have more.
    """
    batch, (m, n, k) = rung(batch), map(rung, shape)

    def cost(tile: Tile) -> int:
        waves = tile.count(batch, m, n) * tile.waves
        return simd_time(caps, waves, tile.instructions(k, b_load))

    fitting = [tile for tile in TILES if tile.fits(caps)]
    # A CPU adapter, for which tiles are not meant, gets one; it has no idle SIMDs.
    offered = 1 if caps.is_cpu else OFFERED
    if caps.is_cpu:
        fitting = [tile for tile in fitting if tile.split == 1] or fitting
    if element == "f16":
        # Sums in f16 take registers beside those in f32.
        fitting = [tile for tile in fitting if tile.high * tile.wide <= 32] or fitting
    return [tile.name for tile in ranked(fitting, cost)[:offered]]
