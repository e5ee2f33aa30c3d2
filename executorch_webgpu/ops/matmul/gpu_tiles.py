"""Tiles of GPU kernels: how many results a workgroup and an invocation compute.

Enters: the size of a product, and what the adapter allows. Leaves: the tiles that
could compute it, the most likely first (tile_text.py has their code). Every tile is
right for every size: what is beyond the operands counts as zero.

The tiles keep to what WebGPU guarantees everywhere, 256 invocations and 16 KiB of
workgroup memory, but for one that needs more memory. Their order comes from a model of
the cost, not from measurements: see `tiles_for`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...plan.caps import Caps

# Invocations of a wave: 64 on AMD, 32 elsewhere, where one wave is half of these.
_WAVE = 64
# Instructions around a load: its address, its edge, and putting it in workgroup memory.
# Counted in what RADV makes of tile.wgsl (`python -m benchmarks isa`).
_LOAD = 25
# The time of a wave that has a SIMD for itself, of which it waits a third, in that of
# one among many.
_ALONE = 1.5
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
        """Bytes of workgroup memory, with a vec4 of padding per row and column."""
        return 16 * (self.rows + self.columns) * (self.depth // 4 + 1)

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

    def instructions(self, b_load: int) -> float:
        """Of an invocation, for one k: its multiply-adds, and its share of loads. (No
        tile reads more than 0.32 bytes of storage for a multiply-add, which caches of
        GPUs give.)"""
        loads = _LOAD * self.a_loads + b_load * self.b_loads
        return self.high * self.wide + loads / self.depth

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


def simd_time(caps: Caps, waves: float, instructions: float) -> float:
    """What a SIMD computes of a dispatch, in instructions of a wave.

    The number of a device's SIMDs is a guess (`Caps.simds`), so that a last round which
    is not full counts half. A single wave waits for its loads; several hide each
    other's.
    """
    return max(waves / caps.simds + 0.5, _ALONE) * instructions


def tile_cost(
    caps: Caps, tile: Tile, sizes: tuple[int, int, int], b_load: int = _LOAD
) -> float:
    """`simd_time` of a batch of products [m, k] x [k, n], for one k.

    Large tiles compute with the fewest instructions, but of them there may be too few
    waves for all SIMDs. `b_load`: instructions around a load of B.
    """
    waves = tile.count(*sizes) * tile.waves
    return simd_time(caps, waves, tile.instructions(b_load))


def tiles_for(caps: Caps, batch: int, m: int, n: int, b_load: int = _LOAD) -> list[str]:
    """Names of the tiles for a product of [m, k] and [k, n], the cheapest first."""

    def cost(tile: Tile) -> float:
        return tile_cost(caps, tile, (batch, m, n), b_load)

    fitting = [tile for tile in TILES if tile.fits(caps)]
    # A CPU adapter, for which tiles are not meant, gets one.
    offered = 1 if caps.is_cpu else OFFERED
    return [tile.name for tile in sorted(fitting, key=cost)[:offered]]
