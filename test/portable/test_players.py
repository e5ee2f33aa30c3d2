"""One file, three players: Python that plans the graph, Python that takes the file's
plans, and C++ alone. What they give is the same, to the bit and to the word."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import players
import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from harness import compare
from players import Cpp, Outcome, Python
from programs import PROGRAMS, RESET, Case, Fails
from torch.utils import _pytree as pytree

from executorch_webgpu import WebGPUPartitioner
from executorch_webgpu.cli import delegates
from executorch_webgpu.portable import serialize


@pytest.fixture(scope="session")
def driver() -> Path:
    return players.build_driver()


@pytest.fixture(scope="module")
def cpp(driver: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cpp]:
    """One process, which plays all programs."""
    player = Cpp(driver, tmp_path_factory.mktemp("cpp"))
    yield player
    player.close()


def exported(case: Case) -> bytes:
    """The program's bytes, all of whose delegates have plans."""
    partitioner = WebGPUPartitioner(portable=True, **case.options)
    with torch.no_grad():
        program = torch.export.export(
            case.model, case.example, dynamic_shapes=case.shapes, strict=case.strict
        )
        edge = to_edge_transform_and_lower(program, partitioner=[partitioner])
        made = bytes(edge.to_executorch().buffer)
    report = partitioner.report
    if case.delegates == 1:
        assert report.complete, str(report)
    found = delegates(made)
    assert len(found) == case.delegates
    assert all(serialize.section(blob) for _, blob in found), report.not_portable
    return made


class Players:
    """The three, asked the same."""

    def __init__(self, cpp: Cpp) -> None:
        self.graph, self.file, self.cpp = Python("graph"), Python("file"), cpp

    def load(
        self,
        file: Path,
        method: str = "forward",
        weights: Path | None = None,
        trusts: bool = False,
    ) -> dict[str, Outcome]:
        return {
            name: player.load(file, method, weights, trusts)
            for name, player in self.all.items()
        }

    def call(self, inputs: Any, by_graph: str = "") -> Outcome:
        """What all of them give, or fail with."""
        leaves = pytree.tree_leaves(inputs)
        wanted = self.file.call(leaves)
        same("C++", self.cpp.call(leaves), wanted)
        planned = self.graph.call(leaves)
        if by_graph:
            assert by_graph in planned.text
        else:
            same("graph", planned, wanted)
        return wanted

    def reset(self) -> None:
        for player in (self.file, self.cpp):
            player.reset()

    @property
    def all(self) -> dict[str, Python | Cpp]:
        return {"file": self.file, "C++": self.cpp, "graph": self.graph}


def same(name: str, found: Outcome, wanted: Outcome) -> None:
    assert (found.code, found.text) == (wanted.code, wanted.text), name
    kinds = [result.kind for result in found.results]
    assert kinds == [result.kind for result in wanted.results], name
    for number, (result, other) in enumerate(zip(found.results, wanted.results)):
        if result != other:
            label = f"{name}, output {number} of {len(kinds)}"
            compare([result.tensor()], [other.tensor()], 0, 0, where=label)
            raise AssertionError(f"{label}: other bits")


def play(case: Case, three: Players) -> None:
    model = copy.deepcopy(case.model)
    for step in case.steps:
        if step == RESET:
            three.reset()
            model = copy.deepcopy(case.model)
        elif isinstance(step, Fails):
            outcome = three.call(step.inputs, step.by_graph)
            assert outcome.code, "nobody fails"
            assert bool(outcome.text) == bool(step.said), outcome.text
            assert step.said in outcome.text
        else:
            outcome = three.call(step)
            assert not outcome.code, outcome.text
            if case.has_eager:
                check_eager(case, model, step, outcome)


def check_eager(case: Case, model: Any, step: Any, outcome: Outcome) -> None:
    with torch.no_grad():
        wanted = [each for each in pytree.tree_leaves(model(*step))]
    results = [result.tensor() for result in outcome.results]
    ints = [each for each in wanted if isinstance(each, int)]
    assert [each for each in results if isinstance(each, int)] == ints
    compare(
        *(
            [each for each in some if not isinstance(each, int)]
            for some in (results, wanted)
        ),
        rtol=case.rtol,
        atol=case.atol,
        where="eager",
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_players_agree(name: str, cpp: Cpp, tmp_path: Path) -> None:
    case = PROGRAMS[name]()
    case.model.eval()
    file = tmp_path / "program.pte"
    file.write_bytes(exported(case))
    three = Players(cpp)
    for player, outcome in three.load(file, trusts=case.trusts).items():
        assert not outcome.code, (player, outcome)
    play(case, three)


def test_no_python_in_the_driver(cpp: Cpp) -> None:
    loaded = cpp.ask("maps")
    assert "libexecutorch_backend_webgpu" in loaded
    assert "python" not in loaded.replace(str(Path(torch.__file__).parents[1]), "")
