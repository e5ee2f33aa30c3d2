"""One file, three players: Python that plans the graph, Python that takes the file's
plans, and C++ alone. What they give is the same, to the bit and to the word."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import driver
import drivers
import pytest
import torch
from driver import Outcome
from executorch.exir import to_edge_transform_and_lower
from exported import exported, file_name, only_for_plans
from harness import Function, compare
from players import Cpp, Python
from programs import LONG, ON_DAWN, PROGRAMS, RESET, Case, Fails
from torch import nn
from torch.export import Dim
from torch.utils import _pytree as pytree

from executorch_webgpu import WebGPUPartitioner
from executorch_webgpu.cli import delegates
from executorch_webgpu.plan.caps import Caps
from executorch_webgpu.portable import serialize, stored_constants
from executorch_webgpu.portable.at_sizes import fitting_profile
from executorch_webgpu.portable.plans import Plans
from executorch_webgpu.runtime import device

NOT_SUPPORTED, NOT_FOUND, INVALID_BLOB = 16, 32, 48


@pytest.fixture(scope="session")
def app() -> Path:
    return driver.module_driver()


@pytest.fixture(scope="module")
def three(app: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Players]:
    """All on the machine's own driver, for all programs: one process of C++."""
    cpp = Cpp(app, tmp_path_factory.mktemp("cpp"))
    yield Players(cpp)
    cpp.close()


@pytest.fixture(scope="module")
def three_more(
    app: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Players]:
    """All on SwiftShader, which takes other plans of halves: it has no f16."""
    if not drivers.second:
        pytest.fail("SwiftShader must be installed: scripts/install-swiftshader.sh")
    env = {drivers._MORE_DRIVERS: str(drivers._MANIFEST)}
    folder = tmp_path_factory.mktemp("cpp")
    cpp = Cpp(app, folder, ET_WEBGPU_ADAPTER=drivers.second, **env)
    yield Players(cpp, drivers.second)
    cpp.close()


@pytest.fixture(scope="module")
def three_with_dawn(
    app: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Players]:
    """Python with wgpu and C++ with Dawn, both on SwiftShader."""
    cpp = Cpp(app, tmp_path_factory.mktemp("cpp"), **driver.dawn())
    yield Players(cpp, drivers.second)
    cpp.close()


# Options that switch off what profiles ask for, and the fields of these.
SWITCHES = {"f16": "f16", "subgroups": "subgroups", "cpu_kernels": "is_cpu"}
FLAGS = {"trust_plans": True, **dict.fromkeys(SWITCHES, True)}


class Players:
    """The three, asked the same."""

    def __init__(self, cpp: Cpp, adapter: str = "") -> None:
        self.adapter = adapter
        self.graph, self.file = Python("graph", adapter), Python("file", adapter)
        self.cpp = cpp

    def load(
        self,
        file: Path,
        method: str = "forward",
        weights: Path | None = None,
        **flags: bool,
    ) -> Outcome:
        """What loading came to."""
        given = (file, method, weights, {**FLAGS, **flags})
        outcome = self.file.load(*given)
        same("C++", self.cpp.load(*given), outcome)
        same("graph", self.graph.load(*given), outcome)
        return outcome

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
        for player in (self.file, self.cpp):  # of Python, all that is loaded
            player.reset()


def same(name: str, found: Outcome, wanted: Outcome) -> None:
    assert (found.code, found.text) == (wanted.code, wanted.text), name
    kinds = [result.kind for result in found.results]
    assert kinds == [result.kind for result in wanted.results], name
    for number, (result, other) in enumerate(zip(found.results, wanted.results)):
        if result != other:
            label = f"{name}, output {number} of {len(kinds)}"
            compare([result.value()], [other.value()], 0, 0, where=label)
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
    results = [result.value() for result in outcome.results]
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


def allowed_of(caps: Caps, flags: dict[str, bool]) -> Caps:
    """What of a device may be used with these options."""
    allowed = {
        field: getattr(caps, field) and flags[name] for name, field in SWITCHES.items()
    }
    return replace(caps, **allowed)


def profiles(program: bytes, caps: Caps) -> list[dict[str, bool]]:
    """Flags with which a device takes each of the profiles that it fits, by one of a
    program's delegates at least; first those with which it takes what it would."""
    found: dict[tuple[str, ...], dict[str, bool]] = {}
    sections = (serialize.section(blob) for _, blob in delegates(program))
    all_plans = [serialize.read(each) for each in sections if each is not None]
    for each in (each for plans in all_plans for each in plans.profiles):
        flags = {name: getattr(each, field) for name, field in SWITCHES.items()}
        fitting = allowed_of(caps, flags)
        chosen = tuple(fitting_profile(plans, fitting).name for plans in all_plans)
        found.setdefault(chosen, flags)
    return [*found.values()]


def check(name: str, three: Players, folder: Path) -> None:
    case = PROGRAMS[name]()
    case.model.eval()
    file = folder / "program.pte"
    file.write_bytes(exported(name, case))
    caps = device.get_device(three.adapter).caps
    for flags in profiles(file.read_bytes(), caps):
        outcome = three.load(file, trust_plans=case.trusts, **flags)
        assert not outcome.code, outcome.text
        play(case, three)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in LONG else [])
        for name in PROGRAMS
    ],
)
def test_players_agree(name: str, three: Players, tmp_path: Path) -> None:
    check(name, three, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_players_agree_on_swiftshader(
    name: str, three_more: Players, tmp_path: Path
) -> None:
    check(name, three_more, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ON_DAWN else [pytest.mark.long])
        for name in PROGRAMS
    ],
)
def test_players_agree_on_dawn(
    name: str, three_with_dawn: Players, tmp_path: Path
) -> None:
    check(name, three_with_dawn, tmp_path)


def test_programs_have_files_of_their_own() -> None:
    assert len(set(map(file_name, PROGRAMS))) == len(PROGRAMS)


def test_no_python_in_the_driver(three: Players) -> None:
    loaded = three.cpp.ask("maps")
    assert "libexecutorch_backend_webgpu" in loaded
    assert "libpython" not in loaded
    assert "_shim" not in loaded


def test_dawn_is_what_plays(three_with_dawn: Players, tmp_path: Path) -> None:
    file = tmp_path / "program.pte"
    file.write_bytes(lowered(nn.ReLU(), (torch.randn(3),), portable=True).buffer)
    assert not three_with_dawn.cpp.load(file, "forward", None, {}).code
    loaded = three_with_dawn.cpp.ask("maps")
    assert "libwebgpu_dawn" in loaded
    assert "wgpu_native" not in loaded


def lowered(model: Any, inputs: Any, shapes: Any = None, **options: Any) -> Any:
    program = torch.export.export(model.eval(), inputs, dynamic_shapes=shapes)
    partitioner = WebGPUPartitioner(**options)
    return to_edge_transform_and_lower(
        program, partitioner=[partitioner]
    ).to_executorch()


def without_plans(outcomes: tuple[Outcome, Outcome]) -> None:
    for outcome in outcomes:
        assert outcome.code == INVALID_BLOB
        assert outcome.text == (
            "init of forward: delegate must carry plans, got none; export with"
            " WebGPUPartitioner(portable=True)"
        )


def test_a_file_without_plans(three: Players, tmp_path: Path) -> None:
    file, x = tmp_path / "program.pte", torch.randn(3)
    file.write_bytes(lowered(nn.ReLU(), (x,)).buffer)
    given = (file, "forward", None, FLAGS)
    without_plans((three.file.load(*given), three.cpp.load(*given)))
    assert not three.graph.load(*given).code


def test_a_file_of_the_first_kind(
    three: Players, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that holds what kernels pack as the graph has it, and again as they bind it,
    gives the same."""
    torch.manual_seed(0)
    model, x = nn.ConvTranspose2d(24, 20, 4, stride=2), torch.randn(1, 24, 7, 6)
    outcomes = []
    for name, least in (("once", 1), ("twice", 1 << 40)):
        monkeypatch.setattr(stored_constants, "LEAST", least)
        made = bytes(lowered(model, (x,), portable=True).buffer)
        ((_, blob),) = delegates(made)
        assert bool(only_for_plans(blob)) == (name == "twice")
        file = tmp_path / f"{name}.pte"
        file.write_bytes(made)
        assert not three.load(file).code
        outcomes.append(three.call((x,)))
    same("once", *outcomes)


def test_sizes_that_no_player_can_find(
    three: Players, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two symbols in one extent: the file says at export that it has no plans."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.atan(torch.cat((x, y))) * 2

    a, b = Dim("a", min=2, max=9), Dim("b", min=2, max=9)
    made = lowered(
        Function(function),
        (torch.randn(3, 4), torch.randn(5, 4)),
        (({0: a}, {0: b}),),
        portable=True,
        operator_blocklist=["aten.cat.default"],
    )
    assert "must be an extent of an input" in caplog.text
    file = tmp_path / "program.pte"
    file.write_bytes(made.buffer)
    given = (file, "forward", None, FLAGS)
    without_plans((three.file.load(*given), three.cpp.load(*given)))
    assert not three.graph.load(*given).code


def test_a_file_with_damaged_plans(three: Players, tmp_path: Path) -> None:
    """The checksum is the first that is looked at, by all that read plans."""
    x = torch.randn(3)
    made = bytearray(lowered(nn.GELU(), (x,), portable=True).buffer)
    ((_, blob),) = delegates(bytes(made))
    section = serialize.section(blob)
    assert section is not None
    made[made.index(bytes(section)) + len(section) // 2] ^= 1
    file = tmp_path / "program.pte"
    file.write_bytes(made)
    given = (file, "forward", None, FLAGS)
    outcome = three.file.load(*given)
    assert outcome.code == INVALID_BLOB
    assert outcome.text.endswith("; the file is damaged")
    same("C++", three.cpp.load(*given), outcome)


# What a profile may ask for that no device has, and how that is said.
UNHEARD_OF = {
    "max_storage_buffers": (1 << 20, "max-storage-buffers-per-shader-stage of 1048576"),
    "max_buffer": (1 << 40, "max-buffer-size of 1099511627776"),
    "max_invocations": (1 << 20, "max-compute-invocations-per-workgroup of 1048576"),
    "workgroup_memory": (1 << 30, "max-compute-workgroup-storage-size of 1073741824"),
    "offset_align": (4, "min-storage-buffer-offset-alignment of at most 4"),
}


def with_profiles(patch: pytest.MonkeyPatch, **changes: Any) -> None:
    """What is exported from now on is for other devices than those that there are."""
    append = serialize.append

    def changed(graph: bytes, plans: Plans) -> bytes:
        profiles = tuple(replace(each, **changes) for each in plans.profiles)
        return append(graph, replace(plans, profiles=profiles))

    patch.setattr(serialize, "append", changed)


@pytest.mark.parametrize("field", UNHEARD_OF)
def test_a_device_that_fits_no_profile(
    field: str, three: Players, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is named, with both numbers; who plans the graph needs no profile."""
    limit, said = UNHEARD_OF[field]
    with_profiles(monkeypatch, **{field: limit})
    check_unfit(three, tmp_path, rf"for profile baseline, {said}, got \d+$")


def test_a_device_without_f16(
    three_more: Players, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_profiles(monkeypatch, f16=True)
    check_unfit(three_more, tmp_path, "for profile baseline, shader-f16, got none$")


@pytest.mark.parametrize(
    ("flag", "feature"),
    [
        ("f16", "shader-f16"),
        ("subgroups", "subgroups"),
        ("cpu_kernels", "cpu-adapter"),
    ],
)
def test_a_feature_that_is_switched_off(
    flag: str,
    feature: str,
    three: Players,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All say that the device has it."""
    with_profiles(monkeypatch, **{SWITCHES[flag]: True})
    said = f"for profile baseline, {feature}, got it switched off$"
    check_unfit(three, tmp_path, said, **{flag: False})


def check_unfit(three: Players, folder: Path, said: str, **flags: bool) -> None:
    file = folder / "program.pte"
    file.write_bytes(lowered(nn.ReLU(), (torch.randn(3),), portable=True).buffer)
    given = (file, "forward", None, {**FLAGS, **flags})
    outcome = three.file.load(*given)
    assert outcome.code == NOT_SUPPORTED
    assert re.search(
        f"^init of forward: .*: the device must have, {said}", outcome.text
    )
    same("C++", three.cpp.load(*given), outcome)
    assert not three.graph.load(*given).code


class Head(nn.Module):
    def __init__(self, linear: nn.Linear, ends_in: Callable[..., Any]) -> None:
        super().__init__()
        self.linear, self.ends_in = linear, ends_in

    def forward(self, x: torch.Tensor) -> Any:
        return self.ends_in(self.linear(x))


def test_methods_of_one_program(three: Players, tmp_path: Path) -> None:
    """They have a weight in common, and plans of their own."""
    linear, x = nn.Linear(48, 32), torch.randn(5, 48)
    models = {"plain": Head(linear, torch.relu), "tail": Head(linear, torch.tanh)}
    edge = to_edge_transform_and_lower(
        {name: torch.export.export(m.eval(), (x,)) for name, m in models.items()},
        partitioner={name: [WebGPUPartitioner(portable=True)] for name in models},
    )
    file = tmp_path / "program.pte"
    file.write_bytes(edge.to_executorch().buffer)
    for name in ("plain", "tail", "plain"):
        assert not three.load(file, name).code
        outcome = three.call((x,))
        with torch.no_grad():
            compare([outcome.results[0].value()], [models[name](x)], atol=1e-4)


def test_weights_in_a_file_of_their_own(three: Players, tmp_path: Path) -> None:
    """Packed ones, which are data of the plans' own, and such that are taken as is."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.table = nn.Linear(64, 40), nn.Embedding(9, 64)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.linear(self.table(ids))

    model, ids = Both(), torch.tensor([[8, 0, 3]])
    made = lowered(model, (ids,), portable=True, external_weights="weights")
    file = tmp_path / "program.pte"
    file.write_bytes(made.buffer)
    made.write_tensor_data_to_file(str(tmp_path))
    weights = tmp_path / "weights.ptd"
    assert weights.stat().st_size > 40 * 64 * 4
    assert not three.load(file, weights=weights).code
    outcome = three.call((ids,))
    with torch.no_grad():
        compare([outcome.results[0].value()], [model(ids)], atol=1e-4)
    three.graph.unload()  # what is on the GPU is shared by content, without a file too
    given = (file, "forward", None, FLAGS)
    # Which of several that are missing is named is not agreed upon.
    for outcome in (three.file.load(*given), three.cpp.load(*given)):
        assert outcome.code == NOT_FOUND
        assert re.sub(r"webgpu_\w+", "key", outcome.text) == (
            "init of forward: forward: named data 'key' must exist;"
            " is its .ptd file loaded?"
        )
