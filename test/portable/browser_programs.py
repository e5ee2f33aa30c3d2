"""Writes what browsers play: the programs of this folder, with calls of them and what
Python comes to on SwiftShader, which browsers have here, too.

    python -m pytest -n 2 test/portable/browser_programs.py

Files are written to build/web/programs, unless they are there and nothing that they are
made from has changed. web/test/browser plays them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import drivers
import pytest
import torch
from driver import TYPES, Outcome, Result
from executorch.devtools import BundledProgram
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import (
    serialize_from_bundled_program_to_flatbuffer,
)
from executorch.exir import to_edge_transform_and_lower
from exported import ROOT, exported, file_name, made_from
from players import Python
from programs import LONG, PROGRAMS, RESET, Case, Fails
from test_players import FLAGS, allowed_of, lowered, profiles, with_profiles
from torch import nn
from torch.utils import _pytree as pytree

from executorch_webgpu import WebGPUPartitioner
from executorch_webgpu.cli import cpu_ops, delegates
from executorch_webgpu.portable import serialize
from executorch_webgpu.portable.at_sizes import fitting_profile
from executorch_webgpu.runtime import device

FOLDER = ROOT / "build" / "web" / "programs"


def is_written(name: str) -> bool:
    path = FOLDER / f"{file_name(name)}.json"
    return path.exists() and json.loads(path.read_text())["made_from"] == made_from()


def write(name: str, program: bytes, ending: str = "pte", **content: Any) -> None:
    """The description comes last: where it is, all is."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{file_name(name)}.{ending}"
    file.write_bytes(program)
    told = {"name": name, "made_from": made_from(), "file": file.name, **content}
    (FOLDER / f"{file_name(name)}.json").write_text(json.dumps(told))


# Browsers' names of the types.
_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in TYPES if dtype}


def shown(value: Any) -> Any:
    """A tensor or an int; elements in the order of the shape."""
    if isinstance(value, Result):
        value = value.value()
    if isinstance(value, int):
        return {"int": value}
    flat = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return {
        "type": _NAMES[value.dtype],
        "dims": list(value.shape),
        "data": base64.b64encode(flat.tobytes()).decode(),
    }


def told(outcome: Outcome) -> Any:
    if outcome.code:
        return {"code": outcome.code, "text": outcome.text}
    return {"results": [shown(each) for each in outcome.results]}


def played(steps: Sequence[Any], python: Python) -> list[Any]:
    """Each step and what came of it."""
    found: list[Any] = []
    for step in steps:
        if step == RESET:
            python.reset()
            found.append({"reset": True})
            continue
        inputs = pytree.tree_leaves(step.inputs if isinstance(step, Fails) else step)
        outcome = python.call(inputs)
        assert bool(outcome.code) == isinstance(step, Fails), outcome.text
        found.append({"inputs": [shown(x) for x in inputs], "wanted": told(outcome)})
    return found


def taken(program: bytes, flags: dict[str, bool]) -> list[str]:
    """The profiles that delegates take with what is allowed."""
    caps = device.get_device(drivers.second).caps
    allowed = allowed_of(caps, flags)
    sections = (serialize.section(blob) for _, blob in delegates(program))
    plans = [serialize.read(each) for each in sections if each is not None]
    return sorted({fitting_profile(p, allowed).name for p in plans})


def on_cpu(program: bytes) -> list[str]:
    """Ops that browsers refuse: all but those of ExecuTorch on sizes."""
    scalars = ("executorch_prim::", "aten::sym_", "aten::_local_scalar_dense")
    ops = [op for found in cpu_ops(program).values() for op in found]
    return [op for op in ops if not op.startswith(scalars)]


def plays(program: bytes, file: Path, case: Case) -> list[Any]:
    """What Python comes to with each profile."""
    python = Python("file", drivers.second)
    found = []
    for flags in profiles(program, device.get_device(drivers.second).caps):
        outcome = python.load(file, "forward", None, {**FLAGS, **flags})
        assert not outcome.code, outcome.text
        steps = played(case.steps, python)
        found.append(
            {"flags": flags, "profiles": taken(program, flags), "steps": steps}
        )
        python.unload()
    return found


@pytest.fixture(autouse=True)
def _swiftshader() -> None:
    if not drivers.second:
        pytest.fail("SwiftShader must be installed: scripts/install-swiftshader.sh")


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in LONG])
def test_a_program_of_all_players(name: str, tmp_path: Path) -> None:
    if is_written(name):
        return
    torch.manual_seed(0)
    case = PROGRAMS[name]()
    case.model.eval()
    program = exported(name, case)
    file = tmp_path / "program.pte"
    file.write_bytes(program)
    refused = on_cpu(program)
    content = {"cpu": refused} if refused else {"plays": plays(program, file, case)}
    write(name, program, kind="conformance", **content)


class Mlp(nn.Module):
    """What most tests of the page load: some weights, sizes that vary."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(nn.functional.gelu(self.first(x)))


class Sum(nn.Module):
    """Remembers the sum of what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 1


class Deep(nn.Module):
    """Many dispatches, each of some work."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(80))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x)) + x
        return x


def _mlp() -> tuple[nn.Module, torch.Tensor, Any]:
    rows = torch.export.Dim("rows", min=1, max=16)
    return Mlp().eval(), torch.randn(4, 64), ({0: rows},)


def write_mlp(name: str) -> None:
    model, x, shapes = _mlp()
    program = lowered(model, (x,), shapes, portable=True).buffer
    calls = [shown(x), shown(model(x))]
    write(name, bytes(program), kind="extra", calls=calls)


def write_bundle(name: str) -> None:
    model, x, shapes = _mlp()
    program = lowered(model, (x,), shapes, portable=True)
    cases = [
        MethodTestCase(inputs=(y,), expected_outputs=(model(y),))
        for y in (x, torch.randn(1, 64), torch.randn(16, 64))
    ]
    wrong = MethodTestCase(inputs=(x,), expected_outputs=(model(x) + 1,))
    suite = MethodTestSuite(method_name="forward", test_cases=[*cases, wrong])
    bundle = BundledProgram(program, [suite])
    made = serialize_from_bundled_program_to_flatbuffer(bundle)
    write(name, bytes(made), "bpte", kind="extra")


def write_sum(name: str) -> None:
    program = lowered(Sum(), (torch.randn(4),), portable=True).buffer
    write(name, bytes(program), kind="extra")


def write_deep(name: str) -> None:
    model, x = Deep().eval(), torch.randn(32, 256)
    program = lowered(model, (x,), portable=True).buffer
    write(name, bytes(program), kind="extra", calls=[shown(x), shown(model(x))])


def write_without_plans(name: str) -> None:
    write(name, bytes(lowered(nn.ReLU(), (torch.randn(3),)).buffer), kind="extra")


def write_on_cpu(name: str) -> None:
    """No delegate at all, and an op that is none of ours."""
    program = torch.export.export(nn.Softsign().eval(), (torch.randn(3),))
    edge = to_edge_transform_and_lower(program)
    write(name, bytes(edge.to_executorch().buffer), kind="extra")


def write_too_large(name: str) -> None:
    """Asks for more invocations than any device has."""
    with pytest.MonkeyPatch.context() as patch:
        with_profiles(patch, max_invocations=1 << 20)
        model, x, shapes = _mlp()
        program = lowered(model, (x,), shapes, portable=True).buffer
    write(name, bytes(program), kind="extra")


def write_halves(name: str) -> None:
    """Has profiles with f16 and without."""
    model, x = nn.Sequential(nn.Linear(64, 96), nn.SiLU()).half(), torch.randn(5, 64)
    program = lowered(model, (x.half(),), portable=True).buffer
    write(name, bytes(program), kind="extra", calls=[shown(x.half())])


class Head(nn.Module):
    def __init__(self, linear: nn.Linear, ends_in: Callable[..., Any]) -> None:
        super().__init__()
        self.linear, self.ends_in = linear, ends_in

    def forward(self, x: torch.Tensor) -> Any:
        return self.ends_in(self.linear(x))


def write_methods(name: str) -> None:
    linear, x = nn.Linear(48, 32), torch.randn(5, 48)
    models = {"plain": Head(linear, torch.relu), "tail": Head(linear, torch.tanh)}
    edge = to_edge_transform_and_lower(
        {key: torch.export.export(m.eval(), (x,)) for key, m in models.items()},
        partitioner={key: [WebGPUPartitioner(portable=True)] for key in models},
    )
    calls = [shown(x), *(shown(model(x)) for model in models.values())]
    write(name, bytes(edge.to_executorch().buffer), kind="extra", calls=calls)


def write_documented(name: str) -> None:
    """What the Python of docs/web.md exports, and the first row for inputs of 0.5."""
    text = (ROOT / "docs" / "web.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    space: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        FOLDER.mkdir(parents=True, exist_ok=True)
        patch.chdir(FOLDER)
        exec(code, space)
    path = FOLDER / "model.pte"
    row = space["model"](torch.full((3, 8), 0.5))[0].tolist()
    write(name, path.read_bytes(), kind="extra", first_row=row)
    path.unlink()


EXTRA = {
    "documented": write_documented,
    "mlp": write_mlp,
    "bundle": write_bundle,
    "sum": write_sum,
    "deep": write_deep,
    "no plans": write_without_plans,
    "on cpu": write_on_cpu,
    "too large": write_too_large,
    "half weights": write_halves,
    "two methods": write_methods,
}


@pytest.mark.parametrize("name", EXTRA)
def test_a_program_of_the_page(name: str) -> None:
    # What the document has may have changed alone.
    if name == "documented" or not is_written(name):
        torch.manual_seed(0)
        with torch.no_grad():
            EXTRA[name](name)
