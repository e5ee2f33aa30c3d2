"""Writes plans that are wrong, and what C++ says of them, for the browser's reader.

    python -m pytest test/cpp/browser_plans.py

web/test/browser/plans.test.ts holds it to the same words. The file is
build/web/plans.json.
"""

from __future__ import annotations

import base64
import json
from types import ModuleType
from typing import Any

import handmade
from driver import ROOT, PlayerDriver
from handmade import packed
from test_player import REFUSED, spoiled_blobs, with_field

FILE = ROOT / "build" / "web" / "plans.json"


def told(player: PlayerDriver, content: bytes) -> dict[str, str]:
    """The bytes, and what came of loading them."""
    shown = base64.b64encode(content).decode()
    return {"blob": shown, "answer": player.load(content)}


def test_what_is_refused(player: PlayerDriver, fb: ModuleType, good: bytes) -> None:
    found: dict[str, Any] = {"good": told(player, good)}
    for path, value in REFUSED:
        root = handmade.plans(fb)
        with_field(path, value)(root)
        found[f"{path} {str(value)[:40]}"] = told(player, packed(root))
    for number, content in enumerate(spoiled_blobs(fb)):
        found[f"at random {number}"] = told(player, content)
    for size in range(0, len(good), 97):
        found[f"cut to {size}"] = told(player, good[:size])
    newer = handmade.blob(handmade.section(handmade.body(handmade.plans(fb)), 2))
    found["a newer format"] = told(player, newer)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps(found))
