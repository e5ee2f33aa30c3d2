"""`bench`: how long a program takes to load and to run and where that time goes, alone
or beside other ways to run its model, taking turns."""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidInput, WebGPUError
from ..progress import Progress
from . import eager
from .bench_report import Case, Measured, Told
from .decoder import Decoder, decoder_of
from .engines import OURS, PEERS, Task, stored
from .inputs import add_input, check_inputs, inputs_of
from .program import Method, find_method, methods, read
from .worker import Worker

# Runs, if none are asked for: so many, or those of this time, but some.
_RUNS, _SECONDS, _FEWEST = 100, 10.0, 5
_LLM_RUNS = 5
# A turn is about as long, so that it is no single quick call after another process's.
_TURN_SECONDS, _MOST_TURNS = 0.1, 20


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("bench", help="measure a program, and its peers")
    parser.add_argument("program", type=Path)
    add_input(parser)
    parser.add_argument(
        "--shapes",
        nargs="+",
        action="append",
        help="of random inputs, such as 1x128, one for each tensor; again: more rows",
    )
    parser.add_argument(
        "--against",
        default="",
        metavar="PEERS",
        help=f"of {', '.join(PEERS)}, with commas; they need --eager",
    )
    parser.add_argument(
        "--eager",
        metavar="MODULE:FUNCTION",
        help="gives (model, example inputs[, dynamic shapes]); the program is then"
        " called with these inputs, too",
    )
    parser.add_argument("--runs", type=int, help="of each engine (about 10 s, or 5)")
    parser.add_argument(
        "--llm", action="store_true", help="tokens per second of prompts and of answers"
    )
    parser.add_argument("-p", type=int, default=64, help="tokens of a prompt")
    parser.add_argument("-n", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    engines = [OURS, *_peers(args)]
    data = read(args.program)
    found = {each.name: each for each in methods(data)}
    method = find_method(data, args.method)
    for name in ("runs", "p", "n"):
        number = getattr(args, name)
        if number is not None and number < 1:
            dashes = "--" if len(name) > 1 else "-"
            raise InvalidInput(f"{dashes}{name}: must be 1 or more, got {number}")
    if args.llm:
        cases = [_bench_llm(args, engines, decoder_of(found, args.method))]
    else:
        cases = [_bench(args, engines, flat) for flat in _inputs(args, method)]
    told = Told(args.program, len(data), args.method, cases)
    if args.json:
        print(json.dumps(told.as_dict(), indent=1))
    else:
        print(told.text())


def _peers(args: argparse.Namespace) -> list[str]:
    names = [name for name in args.against.split(",") if name]
    for name in names:
        if name not in PEERS:
            raise InvalidInput(
                f"--against: must be of {', '.join(PEERS)}, with commas, got {name}"
            )
    if names and args.eager is None:
        raise InvalidInput(
            "--against: needs the model, got none; give --eager module:function"
        )
    return list(dict.fromkeys(names))


def _inputs(args: argparse.Namespace, method: Method) -> Iterator[list[Any]]:
    """By case. The eager model's own inputs fit what it does, random ones may not."""
    if args.eager is not None and args.shapes is None and args.input is None:
        flat = eager.load(args.eager).flat
        check_inputs(method, flat)
        yield flat
        return
    for shapes in args.shapes or [None]:
        yield inputs_of(method, args.input, args.seed, shapes)


def _bench(args: argparse.Namespace, engines: Sequence[str], flat: list[Any]) -> Case:
    with _started(args, engines, flat, None) as (case, workers, bar):
        bar.stage("runs")
        slowest = max(each.ask("calls", 1)[0].total for each in workers)
        runs = args.runs or min(_RUNS, max(_FEWEST, int(_SECONDS / slowest)))
        turns = math.ceil(runs * slowest / _TURN_SECONDS)
        turns = min(turns, runs, _MOST_TURNS)
        bar.total = runs * len(workers)
        for turn in range(turns):
            count = runs * (turn + 1) // turns - runs * turn // turns
            for measured, worker in _in_turn(case, workers, turn):
                made = worker.ask("calls", count)
                measured.calls.setdefault("run", []).extend(made)
                bar.step(count)
    return case


def _bench_llm(
    args: argparse.Namespace, engines: Sequence[str], decoder: Decoder
) -> Case:
    decoder.check(max(args.p, args.n))
    if args.shapes is not None or args.input is not None:
        raise InvalidInput("--llm: makes its own tokens, got --shapes or --input")
    first = decoder.text(args.p, args.p, args.seed)[0]
    # A test's name, its tokens, and the tokens of a call.
    tests = ((f"pp{args.p}", args.p, args.p), (f"tg{args.n}", args.n, 1))
    runs = args.runs or _LLM_RUNS
    with _started(args, engines, first, decoder) as (case, workers, bar):
        case.tokens = {name: tokens for name, tokens, _ in tests}
        bar.total = (runs + 1) * len(tests) * len(workers)
        # The first of each makes plans and kernels for its sizes.
        for turn in range(runs + 1):
            for name, tokens, at_once in tests:
                bar.stage(name)
                for measured, worker in _in_turn(case, workers, turn):
                    call = worker.ask("text", tokens, at_once, args.seed + turn)
                    if turn:
                        measured.calls.setdefault(name, []).append(call)
                    bar.step()
    return case


def _in_turn(
    case: Case, workers: Sequence[Worker], turn: int
) -> list[tuple[Measured, Worker]]:
    """Every second turn in the other order."""
    pairs = list(zip(case.measured, workers))
    return pairs[:: -1 if turn % 2 else 1]


@contextmanager
def _started(
    args: argparse.Namespace,
    engines: Sequence[str],
    flat: list[Any],
    decoder: Decoder | None,
) -> Iterator[tuple[Case, list[Worker], Progress]]:
    """The engines, loaded one after the other and called once; their memory is read in
    the end."""
    case = Case([_size(each) for each in flat])
    with ExitStack() as stack:
        bar = stack.enter_context(Progress("bench"))
        bar.stage("starting")
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="etwgpu"))
        task = Task(
            args.program.resolve(),
            args.method,
            stored(flat),
            Path(folder),
            args.eager,
            decoder,
        )
        workers: list[Worker] = []
        for name in engines:
            workers.append(Worker(name, task, args.verbose))
            stack.callback(workers[-1].close)
        for worker in workers:
            bar.stage(f"preparing {worker.engine}")
            worker.ask("prepare")
        for worker in workers:
            bar.stage(f"loading {worker.engine}")
            case.measured.append(Measured(worker.engine, worker.ask("start")))
        for measured in case.measured[1:]:
            measured.difference = _difference(case.measured[0], measured)
        yield case, workers, bar
        for measured, worker in zip(case.measured, workers):
            measured.memory = worker.ask("memory")


def _size(value: Any) -> str:
    return "x".join(map(str, value.shape)) if hasattr(value, "shape") else str(value)


def _difference(ours: Measured, theirs: Measured) -> float:
    """The largest difference of outputs, relative to the largest of ours. Those of
    other shapes are of another model."""
    pairs = [
        [np.asarray(each, np.float64) for each in outputs if each is not None]
        for outputs in (ours.start.outputs, theirs.start.outputs)
    ]
    shapes = [[list(each.shape) for each in outputs] for outputs in pairs]
    if shapes[0] != shapes[1]:
        raise WebGPUError(
            f"{theirs.engine}: outputs must have the program's shapes {shapes[0]},"
            f" got {shapes[1]}; is --eager the model that it was exported from?"
        )
    worst = 0.0
    for own, other in zip(*pairs):
        scale = float(np.abs(own).max(initial=0)) or 1.0
        worst = max(worst, float(np.abs(own - other).max(initial=0)) / scale)
    return worst
