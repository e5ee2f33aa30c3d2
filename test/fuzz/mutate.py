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

from . import mutate_bytes, mutate_graph
from .programs import Program

# How often a mutant is one of the graph, of the bytes, of the data, by where it is
# played: planning reads no data.
_LEVELS = {"plan": (0.75, 0.25, 0.0), "run": (0.7, 0.2, 0.1)}
# Of the graphs, those that are written and read; for the others that would take longer
# than all that comes after it.
_WRITTEN = 0.25
_MOST_STEPS = 5


@dataclass(frozen=True)
class Mutant:
    """What to load in the place of a program's delegate and named data."""

    program: str
    made: bytes | ir.Graph  # the blob, or what would be read from it
    data: dict[str, bytes]
    steps: tuple[str, ...] = ()  # the names of its mutations

    @property
    def blob(self) -> bytes:
        made = self.made
        return serialize.write(made) if isinstance(made, ir.Graph) else made


def mutant(
    program: Program, seed: int, level: str, without: Collection[int] = frozenset()
) -> Mutant:
    """The mutant of a seed, without the steps of these numbers."""
    rng = Random(f"{program.name} {seed}")
    (kind,) = rng.choices(range(3), _LEVELS[level])
    is_written = rng.random() < _WRITTEN
    count = 1
    while count < _MOST_STEPS and rng.random() < 0.4:
        count += 1
    drawn = [(rng.random(), rng.getrandbits(64)) for _ in range(count)]
    kept = [pair for number, pair in enumerate(drawn) if number not in without]
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
def _pickled(blob: bytes) -> bytes:
    """Copying a graph this way takes a tenth of the time of reading it."""
    return pickle.dumps(serialize.read(blob))
