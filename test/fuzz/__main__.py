"""Mutants of honest programs against the backend: `python test/fuzz`.

    python test/fuzz [--seconds N] [--seed S] [--count N] [--gpu] [--plans]
                     [--processes N]
    python test/fuzz --player [--seed S] [--count N]
    python test/fuzz --replay FILE [--gpu]
    python test/fuzz --minimise SEED [--gpu]

Without `--gpu` mutants are read, verified and planned; with it they are loaded and
executed in the standard runtime, those of graphs. With `--plans`, only mutants of
programs that carry plans are. With `--player`, those of plans that programs carry
are read and checked by the C++ player, built with sanitizers, and by the package, which
must agree. The exit status is 1 if there was any finding; each
kind of finding leaves a file that `--replay` plays again, and that makes a test when it
is moved to `test/fuzz/corpus`.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fuzz import mutate, plan_verdict, programs, reproducers, runner
from fuzz.mutate import Mutant
from fuzz.oracle import Outcome


class Session:
    """What the processes of one run have found so far."""

    def __init__(
        self, level: str, first: int, count: int | None, has_plans: bool = False
    ) -> None:
        self._honest = programs.honest()
        self._level = level
        self._seeds: Iterator[int] = itertools.count(first)
        if has_plans:
            self._seeds = filter(self._has_plans, self._seeds)
        elif level == "run":
            # Kernels of a file may compute for long, and a driver's threads may go on
            # when their mutant is over: its time would count as the next one's.
            self._seeds = itertools.filterfalse(self._has_plans, self._seeds)
        if count is not None:
            self._seeds = itertools.islice(self._seeds, count)
        self.end = float("inf")  # of the clock, after which no mutant is begun
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.found: dict[str, Path] = {}

    def seeds(self) -> Iterator[int]:
        """The seeds that are left, to each process others."""
        while time.monotonic() < self.end:
            with self._lock:
                seed = next(self._seeds, None)
            if seed is None:
                return
            yield seed

    def _has_plans(self, seed: int) -> bool:
        return runner.program_of(self._honest, seed).has_plans

    def play(self) -> None:
        with runner.workers(self._level) as workers:
            for seed, outcome in workers.play(self.seeds()):
                assert isinstance(seed, int)
                self._add(seed, outcome)

    def _add(self, seed: int, outcome: Outcome) -> None:
        key = f"{outcome.kind} {outcome.what}".strip()
        with self._lock:
            self.counts[key] += 1
            if outcome.is_finding and key not in self.found:
                mutant = runner.mutant_of(self._honest, seed, self._level)
                path = reproducers.write(mutant, outcome, seed)
                self.found[key] = path
                print(f"{key}\n    seed {seed}, {path}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python test/fuzz")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--count", type=int, help="mutants, instead of seconds")
    parser.add_argument("--seed", type=int, default=0, help="the first mutant's")
    parser.add_argument("--gpu", action="store_true", help="load and execute, too")
    parser.add_argument("--plans", action="store_true", help="only of such programs")
    parser.add_argument("--player", action="store_true", help="compare with the player")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--replay", type=Path, help="a file that a finding left")
    parser.add_argument("--minimise", type=int, metavar="SEED", help="of a finding")
    options = parser.parse_args()
    level = "run" if options.gpu else "plan"
    if options.replay:
        return replay(options.replay, level)
    if options.minimise is not None:
        return minimise(options.minimise, level)
    if options.player:
        return compare(options.seed, options.count or 10_000)
    session = Session(level, options.seed, options.count, options.plans)
    start = time.monotonic()
    if options.count is None:
        session.end = start + options.seconds
    with ThreadPoolExecutor(options.processes) as threads:
        playing = [threads.submit(session.play) for _ in range(options.processes)]
    for each in playing:
        each.result()
    show(session, time.monotonic() - start)
    return 1 if session.found else 0


def show(session: Session, seconds: float) -> None:
    total = session.counts.total()
    for key, count in session.counts.most_common():
        print(f"{count:8} {100 * count / total:5.1f}%  {key}")
    findings = sum(session.counts[key] for key in session.found)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = used.ru_utime + used.ru_stime
    print(
        f"{total} mutants in {seconds:.0f} s, {total / busy:.0f} per second of a core;"
        f" {findings} findings of {len(session.found)} kinds"
    )


def compare(first: int, count: int) -> int:
    """The package beside the player."""
    honest = {n: p for n, p in programs.honest().items() if p.has_plans}
    player = plan_verdict.build()
    sets = {name: plan_verdict.live_sets(p.blob) for name, p in honest.items()}
    start, found = time.monotonic(), 0
    for begin in range(first, first + count, 1000):
        batch = range(begin, min(begin + 1000, first + count))
        made = [runner.mutant_of(honest, seed, "player") for seed in batch]
        for at, what in plan_verdict.differences(player, made, sets):
            found += 1
            path = reproducers.write(made[at], Outcome("player", what[:40]), batch[at])
            print(f"seed {batch[at]} {made[at].steps}\n {what[:2000]}\n {path}")
    print(f"{count} mutants in {time.monotonic() - start:.0f} s; {found} findings")
    return 1 if found else 0


def replay(path: Path, level: str) -> int:
    with runner.workers(level) as workers:
        ((_, outcome),) = workers.play([reproducers.read(path).mutant])
    print(outcome.kind, outcome.what)
    print(outcome.text)
    return 1 if outcome.is_finding else 0


def minimise(seed: int, level: str) -> int:
    """Leaves a file of the mutant with only the steps that its outcome needs."""
    honest = programs.honest()
    program = honest[runner.mutant_of(honest, seed, level).program]

    def outcome_of(mutant: Mutant) -> Outcome:
        ((_, outcome),) = workers.play([mutant])
        return outcome

    with runner.workers(level) as workers:
        wanted = outcome_of(mutate.mutant(program, seed, level))

        def is_same(mutant: Mutant) -> bool:
            outcome = outcome_of(mutant)
            return (outcome.kind, outcome.what) == (wanted.kind, wanted.what)

        made = mutate.minimised(program, seed, level, is_same)
    print(f"{wanted.kind} {wanted.what}: {', '.join(made.steps)}")
    print(reproducers.write(made, wanted, seed))
    return 1 if wanted.is_finding else 0


if __name__ == "__main__":
    sys.exit(main())
