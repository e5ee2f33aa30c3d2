"""`compare`: how far a program's outputs are from those of the model that it was
exported from, or from what a bundled program expects; and which op departs first."""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import InvalidInput, WebGPUError
from ..progress import Progress
from . import bundle, eager
from .differences import Difference, Tolerance, difference
from .inputs import add_input, check_inputs, inputs_of
from .layers import Layer, Layers
from .loaded import Loaded
from .markdown import table
from .program import find_method, read

# Ops in the table of the worst.
_SHOWN = 10


@dataclass(frozen=True)
class Output:
    """An output of a call."""

    case: str  # "forward", or behind it the number of a bundle's test case
    number: int
    difference: Difference

    @property
    def name(self) -> str:
        return f"{self.case}, output {self.number}"


@dataclass(frozen=True)
class ByLayer:
    """What the ops are like, one by one or as they are fused."""

    first: Layer | None
    worst: list[Layer]
    is_fused: bool


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "compare", help="tell how far a program's outputs are from what is expected"
    )
    parser.add_argument("program", type=Path, nargs="?", help="that of the bundle")
    add_input(parser)
    by = parser.add_mutually_exclusive_group(required=True)
    by.add_argument(
        "--eager",
        metavar="MODULE:FUNCTION",
        help="gives (model, example inputs[, dynamic shapes]); these are the inputs",
    )
    by.add_argument("--bundle", type=Path, help="a bundled program with test cases")
    parser.add_argument(
        "--layers", action="store_true", help="find the first op that departs"
    )
    parser.add_argument("--rtol", type=float, help="of the value that is expected")
    parser.add_argument("--atol", type=float, help="besides; defaults are by type")
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    tolerance = Tolerance(args.rtol, args.atol)
    by_layer = None
    if args.bundle is not None:
        if args.layers:
            raise InvalidInput(
                "--layers: needs the model, got a bundle; give --eager module:function"
            )
        outputs = _of_bundle(args, tolerance)
    else:
        if args.program is None:
            raise InvalidInput("--eager: needs a program to compare, got none")
        with warnings.catch_warnings():
            # Exporters warn of what is theirs to change.
            if not args.verbose:
                warnings.simplefilter("ignore")
            outputs, by_layer = _of_model(args, tolerance)
    print(_json(outputs, by_layer) if args.json else _text(outputs, by_layer))
    _judge(outputs, by_layer)


def _of_bundle(args: argparse.Namespace, tolerance: Tolerance) -> list[Output]:
    found = bundle.read(args.bundle)
    program = found.program if args.program is None else read(args.program)
    outputs = []
    with Progress("compare", len(found.cases)) as bar:
        methods: dict[str, Loaded] = {}
        for case in found.cases:
            if case.method not in methods:
                find_method(program, case.method)
                methods[case.method] = Loaded(program, case.method)
            results = methods[case.method].call(case.inputs)
            name = f"{case.method} {case.number}"
            outputs += _outputs(name, results, case.expected, tolerance)
            bar.step()
    return outputs


def _of_model(
    args: argparse.Namespace, tolerance: Tolerance
) -> tuple[list[Output], ByLayer | None]:
    method = find_method(read(args.program), args.method)
    model = eager.load(args.eager)
    flat = model.flat
    if args.input is not None:
        flat = inputs_of(method, args.input, args.seed)
    check_inputs(method, flat)
    layers = None
    with Progress("compare") as bar:
        if args.layers:
            bar.stage("computing each op")
            layers = Layers(model, flat)
            bar.total = 1 + len(layers.cuts)
        bar.stage("calling the program")
        results = Loaded(args.program, args.method).call(flat)
        with model.kept():
            expected = model.call(flat)
        outputs = _outputs(args.method, results, expected, tolerance)
        bar.step()
        if layers is None:
            return outputs, None
        bar.stage("comparing ops")
        by_layer = _by_layer(layers, tolerance, bar, is_fused=False)
        if by_layer.first is None and any(each.difference.departs for each in outputs):
            bar.stage("comparing what is fused")
            bar.total = bar.done + len(layers.cuts)
            by_layer = _by_layer(layers, tolerance, bar, is_fused=True)
        return outputs, by_layer


def _by_layer(
    layers: Layers, tolerance: Tolerance, bar: Progress, is_fused: bool
) -> ByLayer:
    made = list(layers.compare(tolerance, bar.step, is_fused))
    first = next((each for each in made if each.is_at_fault), None)
    worst = sorted(made, key=lambda each: each.difference.noise, reverse=True)
    return ByLayer(first, worst[:_SHOWN], is_fused)


def _outputs(
    case: str, results: Sequence[Any], expected: Sequence[Any], tolerance: Tolerance
) -> list[Output]:
    if len(results) != len(expected):
        raise WebGPUError(
            f"{case}: outputs must be the {len(expected)} that are expected, got"
            f" {len(results)}"
        )
    return [
        Output(case, number, difference(got, wanted, tolerance))
        for number, (got, wanted) in enumerate(zip(results, expected))
        if wanted is not None
    ]


def _text(outputs: Sequence[Output], by_layer: ByLayer | None) -> str:
    parts = [_table("output", [(each.name, each.difference) for each in outputs])]
    if by_layer is not None:
        parts.append(_verdict(by_layer))
        rows = [(each.describe(), each.difference) for each in by_layer.worst]
        parts.append(_table("worst ops", rows))
    return "\n\n".join(parts)


def _verdict(by_layer: ByLayer) -> str:
    fused = ", fused with the ops before it" if by_layer.is_fused else ""
    if by_layer.first is None:
        return f"no op departs{' by itself or fused' if by_layer.is_fused else ''}"
    found = by_layer.first
    return f"first op that departs{fused}: {found.describe()}: " + (
        found.difference.brief()
    )


def _table(title: str, rows: Sequence[tuple[str, Difference]]) -> str:
    header = [title, "type", "shape", "max abs", "max rel", "SNR dB", "departing"]
    return table(header, [[name, *_cells(found)] for name, found in rows])


def _cells(found: Difference) -> list[str]:
    cells = [found.type, "x".join(map(str, found.shape)) or "-"]
    if found.problem:
        return [*cells, "-", "-", "-", found.problem]
    snr = "equal" if found.snr_db is None else f"{found.snr_db:.1f}"
    measures = [f"{found.max_abs:.3g}", f"{found.max_rel:.3g}", snr]
    return [*cells, *measures, f"{found.departing} of {math.prod(found.shape)}"]


def _json(outputs: Sequence[Output], by_layer: ByLayer | None) -> str:
    told: dict[str, Any] = {
        "outputs": [
            {"case": each.case, "output": each.number, **_as_dict(each.difference)}
            for each in outputs
        ]
    }
    if by_layer is not None:
        first = by_layer.first
        told["first"] = None if first is None else _layer_as_dict(first)
        told["fused"] = by_layer.is_fused
        told["worst"] = [_layer_as_dict(each) for each in by_layer.worst]
    return json.dumps(told, indent=1)


def _layer_as_dict(found: Layer) -> dict[str, Any]:
    place = {"op": found.op, "name": found.name, "module": found.module}
    return place | _as_dict(found.difference)


def _as_dict(found: Difference) -> dict[str, Any]:
    """JSON has no infinity and no NaN."""
    told = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in asdict(found).items()
    }
    return told | {"departs": found.departs, "equal": _is_equal(found)}


def _is_equal(found: Difference) -> bool:
    return not found.departs and found.snr_db is None


def _judge(outputs: Sequence[Output], by_layer: ByLayer | None) -> None:
    for each in outputs:
        if each.difference.departs:
            raise WebGPUError(f"{each.name}: departs: {each.difference.brief()}")
    if by_layer is not None and by_layer.first is not None:
        found = by_layer.first
        raise WebGPUError(
            f"{found.describe()}: departs, though no output does:"
            f" {found.difference.brief()}"
        )
