"""Ops that the suite's tests may leave on the CPU, and why.

Any other op left there fails the run; `docs/conformance.md` has the same list.
"""

EXCEPTIONS: dict[str, str] = {}
