"""What came out, op by op: the records of a run, and the tables of them for the docs.

`docs/opinfo.md` has every op that does not run on the GPU alone; the counts are in
`docs/conformance.md`, between two comments. Both are written, or checked, at the end
of a run of everything.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .outcome import FAILED, FALLBACK, RUNS, WHOLE, Outcome
from .pipeline import EXECUTORCH, EXPORT, NO_KERNEL, RUNTIME, WIDE
from .samples import DTYPES

DOCS = Path(__file__).resolve().parents[2] / "docs"
BEGIN, END = "<!-- test/opinfo writes this -->\n", "<!-- to here -->\n"
# In place of a type: the calls that torch refuses.
ERRORS = "errors"
PART = "some samples"
# Of an op's samples; one that has several is of the first of the last five.
KINDS = {
    WHOLE: "on the GPU alone",
    FALLBACK: "with a fallback",
    PART: "some samples only",
    NO_KERNEL: "no kernel anywhere",
    EXPORT: "`torch.export` refuses",
    EXECUTORCH: "ExecuTorch refuses",
    RUNTIME: "ExecuTorch's kernels fail",
    WIDE: "an int64 beyond 32 bits is reported",
}


@dataclass
class Result:
    """Of an op in one type: how many samples came out how, and why. A line of JSON."""

    op: str
    dtype: str
    counts: dict[str, int]
    reasons: list[str]

    @classmethod
    def parse(cls, line: str) -> Result:
        return cls(**json.loads(line))

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    @property
    def key(self) -> str:
        return key_of(self.op, self.dtype)

    @property
    def kind(self) -> str:
        """One of KINDS, ERRORS or FAILED."""
        found = set(self.counts)
        if FAILED in found:
            return FAILED
        if self.dtype == ERRORS:
            return ERRORS
        if len(found) > 1 and found.isdisjoint(RUNS):
            return next(kind for kind in KINDS if kind in found)
        if found <= set(RUNS):
            return FALLBACK if FALLBACK in found else WHOLE
        return PART if len(found) > 1 else found.pop()


def key_of(op: str, dtype: str) -> str:
    return f"{op}-{dtype}"


def of_errors(op: str, refusals: Iterable[str]) -> Result:
    return Result(op, ERRORS, dict(Counter(refusals)), [])


def of_samples(op: str, dtype: str, outcomes: Sequence[Outcome]) -> Result:
    reasons = dict.fromkeys(reason for found in outcomes for reason in found.reasons)
    counts = Counter(found.kind for found in outcomes)
    return Result(op, dtype, dict(counts), [*reasons])


def read(path: Path) -> dict[str, Result]:
    """The records that a run left, by their keys."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    results = map(Result.parse, lines)
    return {result.key: result for result in results}


def append(path: Path, result: Result) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{result}\n")


def section(results: Sequence[Result]) -> str:
    """The counts, for docs/conformance.md."""
    rows = ["| type | ops | samples | " + " | ".join(KINDS.values()) + " |"]
    rows.append("|---|" + "---:|" * (len(KINDS) + 2))
    for dtype in dict.fromkeys(r.dtype for r in results if r.dtype in DTYPES):
        found = [result for result in results if result.dtype == dtype]
        kinds = Counter(result.kind for result in found)
        samples = sum(sum(result.counts.values()) for result in found)
        numbers = [len(found), samples, *(kinds[kind] for kind in KINDS)]
        rows.append(f"| {dtype} | " + " | ".join(f"{n:,}" for n in numbers) + " |")
    without = sorted({r.op for r in results if r.kind == NO_KERNEL})
    names = ", ".join(f"`{name}`" for name in without) or "none"
    return "\n".join(
        [*rows, "", _refusals(results), "", f"No kernel anywhere: {names}.", ""]
    )


def _refusals(results: Iterable[Result]) -> str:
    """Who refuses what torch refuses."""
    counts: Counter[str] = Counter()
    for result in results:
        if result.dtype == ERRORS:
            counts.update(result.counts)
    told = ", ".join(f"{kind}: {count}" for kind, count in sorted(counts.items()))
    return f"Calls that torch refuses, by who refuses them: {told}."


def page(results: Iterable[Result]) -> str:
    """docs/opinfo.md: every op that does not run on the GPU alone."""
    merged: dict[tuple[str, str, str], list[str]] = {}
    for result in results:
        if result.dtype in DTYPES and result.kind != WHOLE:
            why = "; ".join(dict.fromkeys(map(_cell, result.reasons[:3])))
            merged.setdefault((result.op, result.kind, why), []).append(result.dtype)
    rows = [
        f"| `{op}` | {', '.join(dtypes)} | {KINDS.get(kind, kind)} | {why} |"
        for (op, kind, why), dtypes in sorted(merged.items())
    ]
    return "\n".join([_TITLE, *rows, ""])


_TITLE = """\
# PyTorch's own samples, op by op

Generated by `python test/opinfo --write`; `docs/conformance.md` says what it is. An op
that is not listed for a type runs all samples of it on the GPU alone.

| op | types | samples run | why |
|---|---|---|---|"""


def listed(dtype: str) -> set[str]:
    """The ops that docs/opinfo.md has for a type."""
    found = set()
    for line in (DOCS / "opinfo.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 2 and dtype in cells[2].split(", "):
            found.add(cells[1].strip("`"))
    return found


def _cell(reason: str) -> str:
    """What is the same in every run: no values, no numbers of symbols."""
    text = re.sub(r"element \[.*", "wrong values", " ".join(reason.split()))
    text = re.sub(r"\bu\d+\b", "u", text)[:120]
    return text.replace("|", "\\|").replace("<", "\\<")


def unlike(results: Sequence[Result], write: bool) -> list[str]:
    """The names of the pages that are not what came out; they are with `write`."""
    differ = []
    conformance = (DOCS / "conformance.md").read_text(encoding="utf-8")
    before, _, rest = conformance.partition(BEGIN)
    _, _, after = rest.partition(END)
    pages = {
        "conformance.md": before + BEGIN + section(results) + END + after,
        "opinfo.md": page(results),
    }
    for name, text in pages.items():
        path = DOCS / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            differ.append(name)
            if write:
                path.write_text(text, encoding="utf-8")
    return [] if write else differ
