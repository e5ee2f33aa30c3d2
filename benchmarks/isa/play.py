"""One wave's way through a kernel: how often each block of its machine code runs.

Enters: a kernel, and what is bound to it (sizes, and the content of uniforms). Leaves:
the blocks that the first wave of the first workgroup runs, in order. Registers that
branches depend on are computed as the GPU would compute them, lane by lane. What comes
out of tensors and of workgroup memory is unknown: a branch of lanes that depends on it
is taken by every second lane that comes there, so that both sides run, and by the same
lanes when they come again, so that a loop that data ends is refused as one without end;
so is a branch of the whole wave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .actions import action, written
from .kernel import Instruction, Kernel, classify
from .wave import VCC_MASK, Launch, Operand, Uncountable, Wave, operands

MAX_BLOCKS = 200_000  # a wave that runs more has lost its way


def _branch_taken(name: str, wave: Wave) -> bool:
    kind = name.removeprefix("s_cbranch_")
    if name == "s_branch":
        return True
    if kind in ("execz", "execnz"):
        return (wave.exec == 0) == (kind == "execz")
    code = wave.scc
    if kind in ("vccz", "vccnz"):
        vcc = wave.scalar(VCC_MASK)
        code = None if vcc is None else int((vcc & wave.full) != 0)
    if code is None:
        raise Uncountable(f"{name} depends on unknown data")
    return bool(code) == kind.endswith(("1", "nz"))


# Classes that write no register.
_SILENT = ("hint", "wait", "barrier", "store", "lds_write", "branch")

_Register = tuple[str, int]


def _registers(given: Sequence[Operand]) -> set[_Register]:
    return {
        (one.file, one.index + word)
        for one in given
        if one.file in "sv"
        for word in range(one.words)
    }


def _accesses(instruction: Instruction) -> tuple[set[_Register], set[_Register]]:
    """Registers written and read. Reading too much costs time only."""
    given = operands(instruction.operands)
    return _registers(given[: written(instruction)]), _registers(given)


def _decides(instruction: Instruction) -> bool:
    """Writes what branches look at: a condition, a mask of lanes."""
    name = instruction.name
    return classify(name) in ("scalar", "scalar_load") or name.startswith("v_cmpx")


def _relevant(kernel: Kernel) -> set[Instruction]:
    """The instructions on which a branch may depend, by the registers they write."""
    code = {one for one in kernel.code() if classify(one.name) not in _SILENT}
    accesses = {one: _accesses(one) for one in code}
    chosen: set[Instruction] = set()
    wanted: set[_Register] = set()
    while True:
        found = {
            one for one in code - chosen if _decides(one) or accesses[one][0] & wanted
        }
        if not found:
            return chosen
        chosen |= found
        for one in found:
            wanted |= accesses[one][1]


# The last register that the driver fills: the grid, three ids, the wave's place.
_LAST_INPUT = 9


def _highest_input(kernel: Kernel) -> int:
    """The last scalar register that is read before anything is written to it."""
    known: set[_Register] = set()
    highest = 0
    for one in kernel.code():
        given = operands(one.operands)
        is_silent = classify(one.name) in _SILENT or one.name.startswith("s_cmp")
        targets = 0 if is_silent else 1
        fresh = _registers(given[targets:]) - known
        read = {index for file, index in fresh if file == "s"}
        highest = max([highest, *(index for index in read if index <= _LAST_INPUT)])
        known |= _registers(given[:targets])
    return highest


def _asks_for_grid(kernel: Kernel, launch: Launch) -> bool:
    """Ids of the workgroup come after the grid: without it they are in its place."""
    first_id = 5 if launch.loads_grid else 6
    return launch.uses_grid and _highest_input(kernel) >= first_id


def play(kernel: Kernel, launch: Launch) -> list[int]:
    """The indices of the blocks that the wave runs, in order."""
    wave = Wave(replace(launch, uses_grid=_asks_for_grid(kernel, launch)))
    relevant = _relevant(kernel)
    compiled = [
        [action(one) for one in block.code if one in relevant]
        for block in kernel.blocks
    ]
    ends = [block.code[-1] if block.code else None for block in kernel.blocks]
    trace: list[int] = []
    at = 0
    with np.errstate(all="ignore"):
        while at < len(kernel.blocks):
            trace.append(at)
            if len(trace) > MAX_BLOCKS:
                raise Uncountable(f"more than {MAX_BLOCKS} blocks were run")
            for act in compiled[at]:
                act(wave)
            last = ends[at]
            if last and last.name == "s_endpgm":
                break
            goal = kernel.target(last) if last else None
            at += 1
            if last and goal is not None and _branch_taken(last.name, wave):
                at = goal
    return trace
