"""A mutant: an honest program with a few changes, and the checksums that belong to it.

A mutant is decided by its program and a seed. It is a list of steps, each with a seed
of its own, so that it can be made again without some of them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from random import Random

from executorch_webgpu.ir import serialize

from . import mutate_bytes, mutate_graph
from .programs import Program

# How often a mutant is one of the graph, of the bytes, of the data.
_LEVELS = (0.7, 0.2, 0.1)
_MOST_STEPS = 5


@dataclass(frozen=True)
class Mutant:
    """What to load in the place of a program's delegate and named data."""

    program: str
    blob: bytes
    data: dict[str, bytes]
    steps: tuple[str, ...] = ()  # the names of its mutations


def mutant(
    program: Program, seed: int, without: Collection[int] = frozenset()
) -> Mutant:
    """The mutant of a seed, without the steps of these numbers."""
    rng = Random(f"{program.name} {seed}")
    (level,) = rng.choices(range(3), _LEVELS)
    count = 1
    while count < _MOST_STEPS and rng.random() < 0.4:
        count += 1
    drawn = [(rng.random(), rng.getrandbits(64)) for _ in range(count)]
    kept = [pair for number, pair in enumerate(drawn) if number not in without]
    names: list[str] = []

    def chosen(
        every: tuple[Callable[..., None], ...], place: float
    ) -> Callable[..., None]:
        function = every[int(place * len(every))]
        names.append(function.__name__)
        return function

    blob, data = program.blob, program.data
    if level == 0:
        graph = pickle.loads(_pickled(program.blob))
        for place, inner in kept:
            chosen(mutate_graph.ALL, place)(Random(inner), graph)
        blob = serialize.write(graph)
    elif level == 1:
        body = bytearray(blob[mutate_bytes.HEADER.size :])
        for place, inner in kept:
            chosen(mutate_bytes.BYTES, place)(Random(inner), body)
        blob = mutate_bytes.sealed(bytes(body))
    else:
        data = dict(data)
        for place, inner in kept:
            chosen(mutate_bytes.DATA, place)(Random(inner), data)
    return Mutant(program.name, blob, data, tuple(names))


def minimised(program: Program, seed: int, is_same: Callable[[Mutant], bool]) -> Mutant:
    """The mutant without every step that what it does, `is_same`, does not need."""
    without: set[int] = set()
    for number in range(_MOST_STEPS):
        if is_same(mutant(program, seed, without | {number})):
            without.add(number)
    return mutant(program, seed, without)


@cache
def _pickled(blob: bytes) -> bytes:
    """Copying a graph this way takes a tenth of the time of reading it."""
    return pickle.dumps(serialize.read(blob))
