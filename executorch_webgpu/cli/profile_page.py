"""A page of one profile: its launches over time, and by what they take. It needs no
other file and no network."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from importlib import resources

from .measure import Launch, Measured


def page(title: str, found: Measured, module: Callable[[Launch], str] | None) -> str:
    """The page's text; what comes from a file is data in it, never markup."""
    told = {
        "adapter": found.adapter,
        "how": found.how(),
        "runs": found.runs,
        "launches": [
            {
                "op": each.op,
                "kernel": each.kernel,
                "name": each.name,
                "module": "" if module is None else module(each),
                "begin": round(each.begin, 3),
                "shown": round(each.shown, 3),
                "median": round(each.microseconds, 3),
                "grid": each.grid,
                "moved": each.moved,
            }
            for each in found.launches
        ],
    }
    data = json.dumps(told).replace("<", "\\u003c")
    template = resources.files(__package__).joinpath("profile.html")
    text = template.read_text(encoding="utf-8")
    return text.replace("{{title}}", html.escape(title)).replace("{{data}}", data)
