"""Whether a mutant ended as it must: with outputs of the declared shapes, or with one
of our errors and a sentence; nothing else changed, and nothing was left.

`Planning` reads, verifies and plans without a GPU. `Running` loads and executes a
program in the standard runtime, beside a canary.
"""

from __future__ import annotations

import copy
import gc
import logging
import os
import re
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from executorch_webgpu import errors, ir
from executorch_webgpu.ir import serialize, symbols
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.live_shapes import Live
from executorch_webgpu.plan.load_graph import check_graph, load_graph
from executorch_webgpu.plan.planner import Planner
from executorch_webgpu.portable.plans import Plans
from executorch_webgpu.portable.verify import verify

from . import plan_verdict
from .mutate import Mutant
from .programs import SECRET, Program

# Bytes that a mutant may take beyond what its own buffers have.
MEMORY_LIMIT = 1 << 30
# Seconds of a processor, for planning alone and with the driver's compiler.
TIME_LIMITS = {"plan": 2.0, "run": 10.0}

# Software drivers have kernels of their own.
_CPU_CAPS = replace(AOT_CAPS, is_cpu=True)

_OURS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.WebGPUError)
}
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Outcome:
    """How a mutant ended: `ok`, `refused`, or a finding."""

    kind: str
    what: str = ""  # the error's class, and for a finding also where it was raised
    text: str = ""

    @property
    def is_finding(self) -> bool:
        return self.kind not in ("ok", "refused")


OK = Outcome("ok")


class Watched:
    """A `with` block whose exception, time and memory become an Outcome."""

    def __init__(self, level: str) -> None:
        self.outcome = OK
        self.extra = 0  # bytes of the buffers that the block made
        self._limit = TIME_LIMITS[level]

    def __enter__(self) -> Watched:
        # Makes the peak of the resident memory start again from what there is.
        Path("/proc/self/clear_refs").write_text("5")
        self._memory = memory("VmRSS")
        self._start = time.process_time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is not None and kind is not None:
            self.outcome = _refusal(error)
        seconds = time.process_time() - self._start
        used = memory("VmHWM") - self._memory - self.extra
        if seconds > self._limit:
            where = self.outcome.what
            self.outcome = Outcome("hang", where, f"{seconds:.1f} s, {self.outcome}")
        if used > MEMORY_LIMIT:
            self.outcome = Outcome("memory", self.outcome.what, f"{used >> 20} MB")
        return kind is None or issubclass(kind, Exception)


def memory(name: str) -> int:
    """Bytes, as the kernel counts them."""
    found = re.search(rf"{name}:\s+(\d+) kB", _STATUS.read_text())
    assert found is not None
    return int(found[1]) * 1024


def _refusal(error: BaseException) -> Outcome:
    """What an exception of the Python side is."""
    name, text = type(error).__name__, str(error)
    if isinstance(error, errors.WebGPUError) and _is_sentence(text):
        cause = type(error.__cause__).__name__ if error.__cause__ else name
        return Outcome("refused", _caused(name, cause), text)
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "executorch_webgpu" in f.filename]
    last = (ours or frames)[-1]
    where = f"{name} at {Path(last.filename).name}:{last.lineno}"
    return Outcome("accident", where, f"{text[:300]}\n{_last_frames(error)}")


def _caused(name: str, cause: str) -> str:
    """An error's class, and what it was made of if that was none of ours."""
    return name if cause in _OURS else f"{name} from {cause}"


def _last_frames(error: BaseException) -> str:
    return "".join(traceback.format_tb(error.__traceback__)[-4:])


def _is_sentence(text: str) -> bool:
    """Whether it says something, within what a reader takes in."""
    return 8 < len(text) < 2000 and " " in text


class Planning:
    """Reads, verifies and plans mutants of these programs."""

    level = "plan"

    def __init__(self, programs: dict[str, Program]) -> None:
        self._live = {name: live_inputs(p.blob) for name, p in programs.items()}
        self._sets = {
            name: plan_verdict.live_sets(program.blob)
            for name, program in programs.items()
            if program.has_plans
        }

    def judge(self, mutant: Mutant) -> Outcome:
        with Watched(self.level) as watched:
            if mutant.program in self._sets:
                self._choose(mutant)
            else:
                self._plan(mutant)
        return watched.outcome

    def _choose(self, mutant: Mutant) -> None:
        """Of plans, the ones that fit: nothing is planned."""
        if isinstance(mutant.made, Plans):
            verify(mutant.made)
            plans = mutant.made
        else:
            plans = plan_verdict.read(mutant.blob)
        plan_verdict.verdict(plans, self._sets[mutant.program])

    def _plan(self, mutant: Mutant) -> None:
        if isinstance(mutant.made, ir.Graph):
            graph = mutant.made
            check_graph(graph)
        else:
            graph = load_graph(mutant.blob)
        Planner(graph, AOT_CAPS).upper_bound()
        planner = Planner(graph, _CPU_CAPS)
        planner.upper_bound()
        planner.plan(self._live[mutant.program])
        planner.lower_bound()


def live_inputs(blob: bytes) -> list[Live]:
    """Inputs of the delegate, each symbol in the middle of its range."""
    graph = serialize.read(blob)
    env = {name: (low + high) // 2 for name, (low, high) in graph.symbols.items()}
    inputs = [graph.values[index] for index in graph.inputs]
    return [
        symbols.evaluate(value.symbol, env)
        if value.is_int
        else tuple(symbols.evaluate(dim, env) for dim in value.shape)
        for value in inputs
    ]


class Running:
    """Loads and executes mutants in the standard runtime, beside a canary."""

    level = "run"

    def __init__(self, programs: dict[str, Program]) -> None:
        from executorch.exir._serialize._program import deserialize_pte_binary

        self._programs = programs
        self._records = _Records(logging.DEBUG)
        logger = logging.getLogger("executorch_webgpu")
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self._records)
        self._parsed = {n: deserialize_pte_binary(p.pte) for n, p in programs.items()}
        self._honest = {
            name: [
                copy.deepcopy(r)
                for r in self._load(p.pte, p.has_plans).execute(_tensors(p))
            ]
            for name, p in programs.items()
        }
        # Memory that belongs to nobody, around what mutants read from.
        self._secrets = [np.full(1 << n, SECRET, np.float32) for n in range(4, 18)] * 3
        self._canary = Canary(self._load(programs["canary"].pte), programs["canary"])
        self._log = os.fstat(2).st_size

    def judge(self, mutant: Mutant) -> Outcome:
        before = _live_objects()
        with Watched(self.level) as watched:
            results, outcome = self._play(mutant, watched)
        if watched.outcome.is_finding:
            return watched.outcome
        for found in (
            outcome,
            self._canary.changed(),
            self._leaked(before),
            self._check_log(),
            _foreign(results),
        ):
            if found.is_finding:
                return found
        return outcome

    def _play(self, mutant: Mutant, watched: Watched) -> tuple[list[Any], Outcome]:
        """The outputs of two calls; and, while it is loaded, whether a fresh copy of
        the honest program still computes what it did."""
        self._records.text = ""
        size = _buffer_bytes()
        program = self._programs[mutant.program]
        try:
            method = self._load(self._pte(mutant), program.has_plans)
            watched.extra = _buffer_bytes() - size
            results = list(method.execute(_tensors(program)))
            results += method.execute(_tensors(program))
        except RuntimeError as error:
            return [], _reported(self._records.text, str(error))
        wrong = self._compare(results, mutant.program)
        if wrong:
            return [], Outcome("outputs", wrong)
        loaded = self._load(program.pte, program.has_plans)
        fresh = loaded.execute(_tensors(program))
        if not _equal(fresh, self._honest[mutant.program]):
            return [], Outcome("canary", "fresh copy", "an honest copy has changed")
        return results, OK

    def _compare(self, results: list[Any], name: str) -> str:
        """What is wrong with the types and ranks of results; "" if nothing is."""
        for result, wanted in zip(results, self._honest[name] * 2, strict=True):
            if type(result) is not type(wanted):
                return f"{type(result).__name__}, not {type(wanted).__name__}"
            if result.dtype != wanted.dtype or result.dim() != wanted.dim():
                return f"{result.dtype} {result.shape}, not {wanted.dtype}"
        return ""

    def _pte(self, mutant: Mutant) -> bytes:
        """The program's file with the mutant's delegate and named data."""
        from executorch.exir._serialize._program import serialize_pte_binary

        parsed = self._parsed[mutant.program]
        (delegate,) = parsed.program.backend_delegate_data
        honest = delegate.data
        named = parsed.named_data
        made = copy.copy(parsed)
        if named is not None:
            made.named_data = copy.copy(named)
            made.named_data.pte_data = {
                key: entry
                for key, entry in named.pte_data.items()
                if key in mutant.data
            }
            made.named_data.buffers = list(named.buffers)
            for key, entry in made.named_data.pte_data.items():
                made.named_data.buffers[entry.buffer_index] = mutant.data[key]
        delegate.data = mutant.blob
        try:
            return bytes(serialize_pte_binary(made, extract_delegate_segments=True))
        finally:
            delegate.data = honest

    def _load(self, pte: bytes, has_plans: bool = False) -> Any:
        from executorch.runtime import Runtime

        from executorch_webgpu import options

        options.override({"plans": "file" if has_plans else "graph"})
        return _Loaded(Runtime.get().load_program(pte))

    def _leaked(self, before: dict[str, int]) -> Outcome:
        after = _live_objects()
        if after != before:
            gc.collect()
            after = _live_objects()
        grown = {k: (before[k], n) for k, n in after.items() if n != before[k]}
        return Outcome("leak", ", ".join(grown), str(grown)) if grown else OK

    def _check_log(self) -> Outcome:
        """Control characters that a file's names have put into the log."""
        end = os.fstat(2).st_size
        added, self._log = os.pread(2, end - self._log, self._log), end
        found = re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", added)
        return Outcome("log", "control characters", str(added[:500])) if found else OK


class _Loaded:
    """A program with its only method; both end together."""

    def __init__(self, program: Any) -> None:
        self._program = program
        self._method = program.load_method("forward")

    def execute(self, inputs: list[Any]) -> list[Any]:
        return list(self._method.execute(inputs))


class Canary:
    """A method with weights and a state, whose results are known to the bit."""

    def __init__(self, method: Any, program: Program) -> None:
        self._method = method
        self._inputs = _tensors(program)
        self._x = self._total = program.inputs[0]
        first = method.execute(self._inputs)
        self._rest = [result.clone() for result in first[1:]]

    def changed(self) -> Outcome:
        self._total = self._total + self._x
        total, *rest = self._method.execute(self._inputs)
        if not np.array_equal(total.numpy(), self._total + self._x):
            return Outcome("canary", "state", "the canary's state has changed")
        if not _equal(rest, self._rest):
            return Outcome("canary", "results", "the canary's results have changed")
        return OK


def _reported(text: str, raised: str) -> Outcome:
    """What a failure in the standard runtime is, by the backend's record of it; ""
    where ExecuTorch has refused by itself."""
    head, *rest = text.strip().splitlines() or [raised]
    if not rest:
        return Outcome("refused" if _is_sentence(head) else "accident", "C++", head)
    places = re.findall(r'executorch_webgpu/\S*?(\w+\.py)", line (\d+)', text)
    names = re.findall(r"^([\w.]+)(?:: |$)", text, re.MULTILINE)
    names = [n for n in names if "." in n or n.endswith("Error")] or ["?"]
    short = names[-1].rpartition(".")[2]
    if short in _OURS and _is_sentence(head):
        return Outcome("refused", _caused(short, names[0].rpartition(".")[2]), head)
    where = ":".join(places[-1]) if places else "?"
    return Outcome("accident", f"{short} at {where}", text[-1500:])


class _Records(logging.Handler):
    """The last failure that the backend has told its logger."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


def _foreign(results: list[Any]) -> Outcome:
    for result in results:
        if result.element_size() == 4 and result.numel():
            words = result.contiguous().numpy().view(np.int32)
            if (words == np.float32(SECRET).view(np.int32)).any():
                return Outcome("secret", "outputs", "outputs contain another's memory")
    return OK


def _equal(results: list[Any], wanted: list[Any]) -> bool:
    return all(
        a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
        for a, b in zip(results, wanted, strict=True)
    )


def _tensors(program: Program) -> list[Any]:
    import torch

    return [torch.from_numpy(array.copy()) for array in program.inputs]


def _live_objects() -> dict[str, int]:
    from executorch_webgpu import stats

    now = stats()
    names = ("delegates", "buffers", "buffer_bytes", "bind_groups")
    return {name: getattr(now, name) for name in names}


def _buffer_bytes() -> int:
    return _live_objects()["buffer_bytes"]
