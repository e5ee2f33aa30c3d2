"""Mutants as files: what a finding leaves, and what the corpus is made of.

A file is self-contained, so that it stays what it is when programs and mutations
change: JSON with the blob, the named data and a sentence.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

from .mutate import Mutant
from .oracle import Outcome
from .programs import BUILD


@dataclass(frozen=True)
class Reproducer:
    """A mutant with what it did."""

    why: str
    mutant: Mutant


def write(mutant: Mutant, outcome: Outcome, seed: int) -> Path:
    """A new file in `build/fuzz/found`, named by the outcome."""
    name = re.sub(r"\W+", "-", f"{outcome.kind} {outcome.what}").strip("-")[:80]
    path = BUILD / "found" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "why": f"{outcome.kind}: {outcome.what}",
        "text": outcome.text[:2000],
        "seed": seed,
        "steps": mutant.steps,
        "program": mutant.program,
        "blob": _packed(mutant.blob),
        "data": {key: _packed(value) for key, value in mutant.data.items()},
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def read(path: Path) -> Reproducer:
    content = json.loads(path.read_text())
    data = {key: _unpacked(value) for key, value in content["data"].items()}
    blob = _unpacked(content["blob"])
    return Reproducer(content["why"], Mutant(content["program"], blob, data))


def _packed(content: bytes) -> str:
    return base64.b85encode(zlib.compress(content, 9)).decode()


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b85decode(text))
