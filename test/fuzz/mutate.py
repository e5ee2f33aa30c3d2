"""A mutant: an honest program with a few changes, and the checksums that belong to it.

A mutant is decided by its program and a seed. It is a list of steps, each with a seed
of its own, so that it can be made again without some of them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from executorch_webgpu import ir
from executorch_webgpu.ir import serialize
from executorch_webgpu.portable import serialize as plans_file
from executorch_webgpu.portable.plans import Plans

from . import mutate_bytes, mutate_graph, mutate_plans
from .programs import Program

# How often a mutant is one of the graph, of the bytes, of the data, by where it is
# played: planning reads no data.
_LEVELS = {"plan": (0.75, 0.25, 0.0), "run": (0.7, 0.2, 0.1)}
# Of programs that carry plans: of their rows, of the plans' bytes at places that a
# reader looks at, of any bytes of them, of what is around them.
# The player reads bytes alone: few are of rows, which have to be written for it.
_PLANS = {
    "plan": (0.5, 0.3, 0.15, 0.05),
    "player": (0.2, 0.6, 0.15, 0.05),
    "run": (0.85, 0.1, 0.03, 0.02),
}
# Of the graphs and plans, those that are written and read; for the others that would
# take longer than all that comes after it.
_WRITTEN = 0.25
_MOST_STEPS = 5


@dataclass(frozen=True)
class Mutant:
    """What to load in the place of a program's delegate and named data."""

    program: str
    made: bytes | ir.Graph | Plans  # the blob, or what would be read from it
    data: dict[str, bytes]
    steps: tuple[str, ...] = ()  # the names of its mutations
    front: bytes = b""  # what is before the plans

    @property
    def blob(self) -> bytes:
        match self.made:
            case ir.Graph():
                return serialize.write(self.made)
            case Plans():
                return plans_file.append(self.front, self.made)
        return self.made


def mutant(
    program: Program, seed: int, level: str, without: Collection[int] = frozenset()
) -> Mutant:
    """The mutant of a seed, without the steps of these numbers."""
    rng = Random(f"{program.name} {seed}")
    if program.has_plans:
        return _of_plans(program, rng, level, without)
    (kind,) = rng.choices(range(3), _LEVELS[level])
    is_written = rng.random() < _WRITTEN
    kept = _steps(rng, without)
    names: list[str] = []

    def chosen(every: Sequence[Callable[..., None]], at: float) -> Callable[..., None]:
        function = every[int(at * len(every))]
        names.append(function.__name__)
        return function

    made: bytes | ir.Graph = program.blob
    data = dict(program.data)
    if kind == 0:
        graph: ir.Graph = pickle.loads(_pickled(program.blob))
        for at, inner in kept:
            chosen(mutate_graph.ALL, at)(Random(inner), graph)
        made = serialize.write(graph) if is_written else graph
    elif kind == 1:
        body = bytearray(program.blob[mutate_bytes.HEADER.size :])
        for at, inner in kept:
            chosen(mutate_bytes.BYTES, at)(Random(inner), body)
        made = mutate_bytes.sealed(bytes(body))
    else:
        for at, inner in kept:
            chosen(mutate_bytes.DATA, at)(Random(inner), data)
    return Mutant(program.name, made, data, tuple(names))


def _steps(rng: Random, without: Collection[int]) -> list[tuple[float, int]]:
    """Of each step a number that chooses it, and its seed."""
    count = 1
    while count < _MOST_STEPS and rng.random() < 0.4:
        count += 1
    drawn = [(rng.random(), rng.getrandbits(64)) for _ in range(count)]
    return [pair for number, pair in enumerate(drawn) if number not in without]


def _of_plans(
    program: Program, rng: Random, level: str, without: Collection[int]
) -> Mutant:
    """A mutant of a program with plans, whose graph stays as it is."""
    (kind,) = rng.choices(range(4), _PLANS[level])
    is_written = rng.random() < _WRITTEN
    kept = _steps(rng, without)
    front, body, plans = parts(program.blob)
    names: list[str] = []
    made: bytes | Plans = program.blob
    if kind == 0:
        every = mutate_plans.RUN_ROWS if level == "run" else mutate_plans.ROWS
        for at, inner in kept:
            function = every[int(at * len(every))]
            names.append(function.__name__)
            plans = function(Random(inner), plans)
        made = plans_file.append(front, plans) if is_written else plans
    elif kind < 3:
        changed = bytearray(body)
        for at, inner in kept:
            if kind == 1:
                mutate_plans.patched(Random(inner), changed, body)
                names.append("patched")
            else:
                change = mutate_bytes.BYTES[int(at * len(mutate_bytes.BYTES))]
                change(Random(inner), changed)
                names.append(change.__name__)
        made = mutate_plans.sealed(front, bytes(changed))
    else:
        blob = bytearray(program.blob)
        for _, inner in kept[:1]:
            mutate_plans.header(Random(inner), blob, len(front))
            names.append("header")
        made = bytes(blob)
    return Mutant(program.name, made, dict(program.data), tuple(names), front)


def minimised(
    program: Program, seed: int, level: str, is_same: Callable[[Mutant], bool]
) -> Mutant:
    """The mutant without every step that what it does, `is_same`, does not need."""
    without: set[int] = set()
    for number in range(_MOST_STEPS):
        if is_same(mutant(program, seed, level, without | {number})):
            without.add(number)
    return mutant(program, seed, level, without)


@cache
def parts(blob: bytes) -> tuple[bytes, bytes, Plans]:
    """What is before the plans, their flatbuffer, and what it holds."""
    section = plans_file.section(blob)
    assert section is not None
    body = bytes(section[mutate_bytes.HEADER.size :])
    return blob[: len(blob) - section.nbytes], body, plans_file.read(section)


@cache
def _pickled(blob: bytes) -> bytes:
    """Copying a graph this way takes a tenth of the time of reading it."""
    return pickle.dumps(serialize.read(blob))
