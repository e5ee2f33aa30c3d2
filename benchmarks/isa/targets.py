"""The GPUs that kernels are compiled for, and everything that estimates assume.

Compute units, SIMDs and widths are the architectures'; clocks and bandwidths are those
of the boards named. Latencies are round numbers within what is published for these
architectures; no figure here was measured by us.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """One GPU, by the name that RADV_FORCE_FAMILY takes."""

    name: str
    title: str
    compute_units: int
    simds: int  # of a compute unit
    ghz: float
    gigabytes: float  # per second, of its memory
    is_rdna: bool  # a SIMD takes 32 lanes per clock; GCN's takes 16
    packs_ids: bool = False  # local ids come in one register (GFX11)
    loads_grid: bool = False  # the number of workgroups comes by pointer (GFX9)

    @property
    def lanes_per_clock(self) -> int:
        return 32 if self.is_rdna else 16

    def peak(self) -> float:
        """Multiply-adds per microsecond in float32, without dual issue."""
        simds = self.compute_units * self.simds
        return simds * self.lanes_per_clock * self.ghz * 1e3


TARGETS = (
    Target("navi31", "RX 7900 XTX", 96, 2, 2.3, 960, True, packs_ids=True),
    Target("navi21", "RX 6900 XT", 80, 2, 2.25, 512, True),
    Target("rembrandt", "Radeon 680M, integrated", 12, 2, 2.4, 80, True),
    Target("vega10", "RX Vega 64", 64, 4, 1.5, 484, False, loads_grid=True),
)


@dataclass(frozen=True)
class Assumed:
    """Clocks, if not said otherwise."""

    load: int = 500  # from memory or its caches, until the value can be used
    lds: int = 80
    scalar_load: int = 60
    barrier: int = 20
    branch: int = 6
    # A unit's least and its throughput in bytes per clock.
    load_issue: int = 4
    load_bytes: int = 64
    lds_issue: int = 2
    lds_bytes: int = 128
    launch: float = 2.0  # microseconds, until the next dispatch of a model can begin
    slow: int = 4  # times a plain instruction: 32-bit products, exp, rcp and the like


# Of `Assumed.load`: estimates are given for each.
LATENCIES = (300, 500, 800)


def find(name: str) -> Target:
    for target in TARGETS:
        if target.name == name:
            return target
    names = ", ".join(target.name for target in TARGETS)
    raise SystemExit(f"isa: target must be one of {names}, got {name!r}")
