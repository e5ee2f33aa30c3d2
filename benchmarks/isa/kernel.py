"""A kernel's machine code as text in, its blocks, loops and counts of instructions out.

Facts only: what the compiler wrote. How often each block runs is `play.py`'s, how long
it may take `estimate.py`'s.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from .listing import instructions


@dataclass(frozen=True)
class Instruction:
    """One instruction; `::` joins two of these into one that issues once."""

    name: str
    operands: str


# Bytes that a lane moves, by what a memory instruction's name contains; first match.
_WIDTHS = (
    ("b128", 16),
    ("dwordx4", 16),
    ("b96", 12),
    ("dwordx3", 12),
    ("b64", 8),
    ("dwordx2", 8),
    ("d16", 2),
    ("short", 2),
    ("16", 2),
    ("byte", 1),
    ("u8", 1),
    ("i8", 1),
    ("b8", 1),
)


def width(name: str) -> int:
    """Bytes per lane of a load or store."""
    one = next((size for part, size in _WIDTHS if part in name), 4)
    return 2 * one if re.match(r"ds_(load|read|store|write)_?2", name) else one


# Prefixes of names, in order of the test: the class of an instruction.
_CLASSES = (
    ("load", ("buffer_load", "global_load", "flat_load")),
    ("store", ("buffer_store", "global_store", "flat_store")),
    ("atomic", ("buffer_atomic", "global_atomic")),
    ("scratch", ("scratch_",)),
    ("lds_read", ("ds_load", "ds_read")),
    ("lds_write", ("ds_store", "ds_write")),
    ("lds_other", ("ds_",)),
    ("scalar_load", ("s_load", "s_buffer_load")),
    ("barrier", ("s_barrier",)),
    ("wait", ("s_waitcnt", "s_wait_")),
    # Hints, which the front end consumes.
    ("hint", ("s_nop", "s_delay_alu", "s_clause", "s_inst_pref", "s_set_inst_pref")),
    ("hint", ("s_sendmsg", "s_endpgm", "s_code_end", "s_sleep", "buffer_gl", "v_nop")),
    ("branch", ("s_cbranch", "s_branch", "s_setpc", "s_call", "s_swappc")),
    ("scalar", ("s_",)),
    ("fma", ("v_pk_fma", "v_dot", "v_fma_mix", "v_mad_mix", "v_wmma")),
    ("fma", ("v_fma", "v_dual_fma", "v_mad_f", "v_mac_f", "v_madmk", "v_madak")),
    ("special", tuple(f"v_{f}_f" for f in ("exp", "log", "rcp", "rsq", "sqrt", "sin"))),
    ("vector", ("v_",)),
)
VECTOR_ALU = ("fma", "special", "vector")
# Multiply-adds per lane, where that is not one.
_FMA_LANES = (("v_pk_fma", 2), ("v_dot2", 2), ("v_dot4", 4), ("v_dot8", 8))


def classify(name: str) -> str:
    """One of the classes above; "other" if none fits."""
    return next((kind for kind, starts in _CLASSES if name.startswith(starts)), "other")


def fma_lanes(name: str) -> int:
    return next((count for start, count in _FMA_LANES if name.startswith(start)), 1)


_LABEL = re.compile(r"(BB\d+):")
_NAME = re.compile(r"[a-z][a-z_0-9]*$")


@dataclass
class Block:
    """Instructions between labels or branches; control enters at the top only."""

    label: str
    code: list[Instruction] = field(default_factory=list)


@dataclass
class Kernel:
    """Blocks in the order of the code. Control falls through to the next."""

    blocks: list[Block]

    @cached_property
    def index(self) -> dict[str, int]:
        return {block.label: i for i, block in enumerate(self.blocks) if block.label}

    @cached_property
    def loops(self) -> list[tuple[int, int]]:
        """First and last block of every loop, outer ones first."""
        found: dict[int, int] = {}
        for i, block in enumerate(self.blocks):
            for instruction in block.code:
                start = self.target(instruction)
                if start is not None and start <= i:
                    found[start] = max(found.get(start, i), i)
        return sorted(found.items(), key=lambda loop: (loop[0], -loop[1]))

    def target(self, instruction: Instruction) -> int | None:
        """The block that a branch jumps to."""
        if not instruction.name.startswith(("s_cbranch", "s_branch")):
            return None
        return self.index[instruction.operands.split()[-1]]

    def code(self) -> Iterable[Instruction]:
        return (instruction for block in self.blocks for instruction in block.code)


def parse(text: str) -> Kernel:
    """The disassembly that RADV gives. Blocks end with branches and at labels."""
    blocks = [Block("")]
    for line in instructions(text):
        if label := _LABEL.match(line):
            blocks.append(Block(label[1]))
            continue
        for part in line.split("::"):
            name, _, operands = part.strip().partition(" ")
            if _NAME.match(name):
                blocks[-1].code.append(Instruction(name, operands.strip()))
                if classify(name) == "branch":
                    blocks.append(Block(""))
    return Kernel([block for block in blocks if block.code or block.label])


@dataclass(frozen=True)
class Counts:
    """Instructions by class; loads and stores also by bytes per lane."""

    classes: Counter[str]
    widths: dict[str, Counter[int]]
    fma: int  # multiply-adds per lane
    round_trips: int

    @property
    def vector_alu(self) -> int:
        return sum(self.classes[kind] for kind in VECTOR_ALU)


def count(code: Sequence[Instruction]) -> Counts:
    classes: Counter[str] = Counter()
    widths: dict[str, Counter[int]] = {}
    fma = 0
    for instruction in code:
        kind = classify(instruction.name)
        classes[kind] += 1
        if kind in ("load", "store", "lds_read", "lds_write"):
            widths.setdefault(kind, Counter())[width(instruction.name)] += 1
        if kind == "fma":
            fma += fma_lanes(instruction.name)
    return Counts(classes, widths, fma, round_trips(code))


_LOADS_LEFT = re.compile(r"vmcnt\((\d+)\)|^s_wait_loadcnt (\d+|0x[0-9a-f]+)")


def loads_left(instruction: Instruction) -> int | None:
    """How many loads may still be in flight after this instruction; None: any."""
    if not instruction.name.startswith("s_wait"):
        return None
    found = _LOADS_LEFT.search(f"{instruction.name} {instruction.operands}")
    return int(found[1] or found[2], 0) if found else None


def round_trips(code: Sequence[Instruction]) -> int:
    """Waits for loads that were issued after the wait before: a wave goes to memory and
    back so many times, one after the other."""
    in_flight: list[int] = []
    last_wait, trips = -1, 0
    for position, instruction in enumerate(code):
        if classify(instruction.name) == "load":
            in_flight.append(position)
        left = loads_left(instruction)
        if left is not None and left < len(in_flight):
            landed = in_flight[: len(in_flight) - left]
            in_flight = in_flight[len(in_flight) - left :]
            if landed[-1] > last_wait:
                trips, last_wait = trips + 1, position
    return trips


@dataclass(frozen=True)
class Statistics:
    """What the compiler says of a kernel."""

    wave: int  # lanes
    vgprs: int
    sgprs: int
    lds: int  # bytes per workgroup
    spills: int
    scratch: int  # bytes per lane
    waves_per_simd: int  # at most, by registers and LDS


def read_statistics(path: Path, is_rdna: bool) -> Statistics:
    found = dict(line.split("\t") for line in path.read_text().splitlines())
    number = {name: int(value) for name, value in found.items()}
    waves = number["Subgroups per SIMD"]
    # On RDNA RADV counts waves of 32 lanes, also for a kernel whose waves have 64: 96
    # registers of 768 leave room for 8, and it says 16.
    if is_rdna and number["Wave size"] == 64:
        waves //= 2
    return Statistics(
        wave=number["Wave size"],
        vgprs=number["VGPRs"],
        sgprs=number["SGPRs"],
        lds=number["LDS size"],
        spills=number["Spilled VGPRs"] + number["Spilled SGPRs"],
        scratch=number["Scratch size"],
        waves_per_simd=max(1, waves),
    )
