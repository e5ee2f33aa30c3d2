"""From a wave's way through a kernel to microseconds, by assumed clocks.

Counted: the instructions of the wave in their order, and what they wait for. Assumed:
how many clocks each takes (`targets.Assumed`), that all waves go the same way, and that
caches and banks cost no more than a width does. A dispatch is as slow as its slowest
bound: one wave after the other in the places that registers and workgroup memory leave,
or the throughput of what the waves of a SIMD or of a compute unit share.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields

from .kernel import (
    VECTOR_ALU,
    Block,
    Kernel,
    Statistics,
    classify,
    fma_lanes,
    loads_left,
    width,
)
from .targets import Assumed, Target

_SLOW = re.compile(
    r"v_(mul_lo|mul_hi|mad_u64|mad_i64)|v_(exp|log|rcp|rsq|sqrt|sin|cos)_"
)
_LDS_LEFT = re.compile(r"lgkmcnt\((\d+)\)")


@dataclass
class Tally:
    """What one wave does. The first five are counted, the others are clocks."""

    vector_alu: float = 0
    fma: float = 0  # per lane
    loads: float = 0
    round_trips: float = 0  # to memory, one after the other
    moved: float = 0  # bytes that its lanes load and store
    time: float = 0
    stalled: float = 0
    alu_busy: float = 0
    lds_busy: float = 0
    load_busy: float = 0

    def copy(self) -> Tally:
        return Tally(*(getattr(self, each.name) for each in fields(self)))

    def repeat(self, since: Tally, times: int) -> None:
        """Adds what was added since an earlier copy, so many times more."""
        for each in fields(self):
            now, before = getattr(self, each.name), getattr(since, each.name)
            setattr(self, each.name, now + (now - before) * times)


@dataclass(frozen=True)
class _Step:
    """An instruction as the clock sees it."""

    kind: str
    cost: float = 0  # clocks of the unit
    fma: int = 0
    moved: int = 0  # bytes
    loads_left: int = -1  # of a wait; -1: any
    lds_left: int = -1


def _steps(block: Block, target: Target, wave: int, assumed: Assumed) -> list[_Step]:
    issue = wave / target.lanes_per_clock
    made = []
    for instruction in block.code:
        name = instruction.name
        kind = classify(name)
        if kind in VECTOR_ALU:
            cost = issue * (assumed.slow if _SLOW.match(name) else 1)
            fma = fma_lanes(name) if kind == "fma" else 0
            made.append(_Step("alu", cost, fma))
        elif kind in ("load", "store", "atomic"):
            moved = wave * width(name)
            cost = max(assumed.load_issue, moved / assumed.load_bytes)
            way = "store" if kind == "store" else "load"
            made.append(_Step(way, cost, moved=moved))
        elif kind.startswith("lds"):
            cost = max(assumed.lds_issue, wave * width(name) / assumed.lds_bytes)
            made.append(_Step("lds", cost))
        elif kind == "wait":
            lds = _LDS_LEFT.search(instruction.operands)
            loads = loads_left(instruction)
            made.append(
                _Step(
                    "wait",
                    1,
                    loads_left=-1 if loads is None else loads,
                    lds_left=int(lds[1]) if lds else -1,
                )
            )
        elif kind == "barrier":
            made.append(_Step("other", assumed.barrier))
        elif kind == "branch":
            made.append(_Step("other", assumed.branch))
        elif kind == "scalar_load":
            made.append(_Step("scalar_load", 1))
        elif kind != "hint":
            made.append(_Step("other", 1))
    return made


class _Clock:
    """One wave alone on a SIMD: it issues in order and waits where it says so."""

    def __init__(self, assumed: Assumed) -> None:
        self.assumed = assumed
        self.tally = Tally()
        self.loads: list[float] = []  # when each in flight lands
        self.lds: list[float] = []
        self.load_free = self.lds_free = 0.0  # when the unit takes the next
        self.is_fresh = False  # loads were issued since the last wait for any

    def run(self, steps: Sequence[_Step]) -> None:
        tally, assumed = self.tally, self.assumed
        for step in steps:
            if step.kind == "alu":
                tally.time += step.cost
                tally.alu_busy += step.cost
                tally.vector_alu += 1
                tally.fma += step.fma
            elif step.kind in ("load", "store"):
                self.load_free = max(self.load_free, tally.time) + step.cost
                tally.load_busy += step.cost
                tally.moved += step.moved
                tally.time += 1
                if step.kind == "load":
                    self.loads.append(self.load_free + assumed.load)
                    self.is_fresh = True
                    tally.loads += 1
            elif step.kind == "lds":
                self.lds_free = max(self.lds_free, tally.time) + step.cost
                tally.lds_busy += step.cost
                tally.time += 1
                self.lds.append(self.lds_free + assumed.lds)
            elif step.kind == "scalar_load":
                tally.time += step.cost
                self.lds.append(tally.time + assumed.scalar_load)
            elif step.kind == "wait":
                self._wait(step)
            else:
                tally.time += step.cost

    def _wait(self, step: _Step) -> None:
        tally = self.tally
        if 0 <= step.loads_left < len(self.loads):
            tally.round_trips += self.is_fresh
            self.is_fresh = False
        for queue, left in ((self.loads, step.loads_left), (self.lds, step.lds_left)):
            if 0 <= left < len(queue):
                landed = max(queue[: len(queue) - left])
                tally.stalled += max(0.0, landed - tally.time)
                tally.time = max(tally.time, landed)
                del queue[: len(queue) - left]
        tally.time += step.cost

    def repeat(self, since: Tally, times: int) -> None:
        """Goes on as since an earlier copy of the tally, so many times more."""
        moved = (self.tally.time - since.time) * times
        self.tally.repeat(since, times)
        self.loads = [landing + moved for landing in self.loads]
        self.lds = [landing + moved for landing in self.lds]
        self.load_free += moved
        self.lds_free += moved


@dataclass(frozen=True)
class _Visit:
    """When a loop's first block was entered, and how the round before went."""

    at: int  # in the trace
    tally: Tally
    blocks: int
    clocks: float


def time_wave(
    kernel: Kernel,
    trace: Sequence[int],
    wave: int,
    target: Target,
    assumed: Assumed,
) -> Tally:
    """Plays the trace. Rounds of a loop that go as the two before are not played but
    counted, which gives the same sums."""
    steps = [_steps(block, target, wave, assumed) for block in kernel.blocks]
    starts = {start for start, _ in kernel.loops}
    clock = _Clock(assumed)
    visits: dict[int, _Visit] = {}
    at = 0
    while at < len(trace):
        block = trace[at]
        if block in starts:
            last = visits.get(block)
            now = _Visit(at, clock.tally.copy(), 0, 0.0)
            if last:
                blocks, clocks = at - last.at, clock.tally.time - last.tally.time
                now = _Visit(at, now.tally, blocks, clocks)
                if (blocks, clocks) == (last.blocks, last.clocks):
                    times = _repeats(trace, at, blocks)
                    clock.repeat(last.tally, times)
                    at += times * blocks
                    if times:
                        now = _Visit(at, clock.tally.copy(), blocks, clocks)
            visits[block] = now
        clock.run(steps[trace[at]])
        at += 1
    return clock.tally


def _repeats(trace: Sequence[int], at: int, blocks: int) -> int:
    """How often the last `blocks` come again from here, if they came twice."""
    path = trace[at - blocks : at]
    if path != trace[at - 2 * blocks : at - blocks]:
        return 0
    times = 0
    while trace[at + times * blocks : at + (times + 1) * blocks] == path:
        times += 1
    # The trace goes on with the block after the last round.
    return times if at + times * blocks < len(trace) else max(0, times - 1)


@dataclass(frozen=True)
class Estimate:
    """Of one dispatch."""

    microseconds: float
    bound: str  # what it is as slow as: wave, alu, lds or load
    waves: int
    waves_per_simd: float  # if all were there at once


def estimate(
    tally: Tally,
    statistics: Statistics,
    threads: int,
    groups: int,
    target: Target,
) -> Estimate:
    waves = groups * -(-threads // statistics.wave)
    simds = target.compute_units * target.simds
    wanted = waves / simds
    resident = max(1, min(statistics.waves_per_simd, math.ceil(wanted)))
    rounds = max(1.0, wanted / resident)
    # How many SIMDs of a compute unit have work that shares its LDS and its cache.
    sharing = max(1, min(target.simds, math.ceil(waves / target.compute_units)))
    bounds = {
        "wave": tally.time,
        "alu": resident * tally.alu_busy,
        "lds": resident * sharing * tally.lds_busy,
        "load": resident * sharing * tally.load_busy,
    }
    bound = max(bounds, key=lambda name: bounds[name])
    microseconds = rounds * bounds[bound] / target.ghz / 1e3
    return Estimate(microseconds, bound, waves, wanted)
