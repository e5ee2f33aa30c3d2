"""What ever broke something is refused in a sentence, or runs; it changes nothing else.

`python test/fuzz` looks for more.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz import corpus, plan_verdict, programs, runner
from fuzz.mutate import minimised, mutant
from fuzz.oracle import Outcome

from executorch_webgpu.errors import InvalidInput
from executorch_webgpu.runtime import tuning_file


@pytest.fixture(scope="module")
def honest() -> dict[str, programs.Program]:
    return programs.honest()


@pytest.mark.parametrize("level", ["plan", "run"])
def test_corpus(honest: dict[str, programs.Program], level: str) -> None:
    cases = {n: c for n, c in corpus.cases(honest).items() if c.level == level}
    wrong: dict[str, Outcome] = {}
    with runner.workers(level) as workers:
        mutants = [case.mutant for case in cases.values()]
        for (name, case), (_, outcome) in zip(cases.items(), workers.play(mutants)):
            if outcome.is_finding or case.kind not in ("", outcome.kind):
                wrong[name] = outcome
    assert not wrong, "\n".join(f"{name}: {outcome}" for name, outcome in wrong.items())


@pytest.mark.parametrize("level", ["plan", "run"])
def test_honest_programs_are_fine(
    honest: dict[str, programs.Program], level: str
) -> None:
    """A judge that refuses all of them would find nothing."""
    mutants = [mutant(p, 0, level, without=range(99)) for p in honest.values()]
    with runner.workers(level) as workers:
        for item, outcome in workers.play(mutants):
            assert outcome.kind == "ok", (item, outcome)


def test_a_mutant_is_made_again_from_its_seed(
    honest: dict[str, programs.Program],
) -> None:
    program = honest["views"]
    made = [mutant(program, seed, "plan") for seed in range(30)]
    assert made == [mutant(program, seed, "plan") for seed in range(30)]
    assert len({each.blob for each in made}) > 15
    seed = next(s for s in range(30) if len(set(made[s].steps)) > 2)
    last = made[seed].steps[-1]
    kept = minimised(program, seed, "plan", lambda each: last in each.steps)
    assert kept.steps == (last,)


def test_the_player_and_the_package_agree_on_plans(
    honest: dict[str, programs.Program],
) -> None:
    """In C++ with sanitizers, and in Python: on what was found, and on mutants."""
    carrying = {name: p for name, p in honest.items() if p.has_plans}
    sets = {name: plan_verdict.live_sets(p.blob) for name, p in carrying.items()}
    mutants = [mutant(p, 0, "player", without=range(99)) for p in carrying.values()]
    cases = [case.mutant for case in corpus.cases(honest).values()]
    mutants += [each for each in cases if each.program in carrying]
    mutants += [runner.mutant_of(carrying, seed, "player") for seed in range(2000)]
    player = plan_verdict.build()
    different = list(plan_verdict.differences(player, mutants, sets))
    assert not different, different[0]
    answers, _ = plan_verdict.player_verdicts(
        player, [(p.blob, plan_verdict.packed(sets[n])) for n, p in carrying.items()]
    )
    assert all(" 0 0:" in each or " 0 1:" in each for each in answers), answers


def test_a_tuning_file_of_brackets_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    path.write_text("[" * 100_000)
    with pytest.raises(InvalidInput, match="tuning file"):
        tuning_file.read(path)
