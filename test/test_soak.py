"""The soak finds nothing in two programs, and what is wrong in one that is."""

from __future__ import annotations

from soak import CALLS, SHAPES, Program, State, Weighted, soak


def test_a_short_soak() -> None:
    dynamic = Program("scale", Weighted(lambda x, w: x * w[0]), True)
    state = Program("state", State(), False)
    found = soak([dynamic, state], 4)
    assert found.wrong == 0
    assert found.after == found.before
    assert found.shapes == 2 * SHAPES
    assert len(found.resident) == 4
    state.known[0] = b"other bits"
    assert soak([dynamic, state], 4).wrong == 2 * -(-CALLS // 4)
