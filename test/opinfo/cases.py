"""The tests: every op in every type, and the calls that torch refuses.

Not collected with the project's own tests; `python test/opinfo` names this file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from .errors import SILENT, refused_by
from .outcome import FAILED, outcomes
from .results import ERRORS, Result, of_samples
from .samples import DTYPES, OPS, calls, wrong_calls

Record = Callable[[str, object], None]


def cases() -> list[tuple[str, str]]:
    """Every op with every type of samples that it has, or with its errors."""
    typed = [
        (name, dtype)
        for dtype in DTYPES
        for name, op in OPS.items()
        if DTYPES[dtype] in op.supported_dtypes("cpu")
    ]
    refusing = [name for name, op in OPS.items() if op.error_inputs_func is not None]
    return typed + [(name, ERRORS) for name in refusing]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("--dtype") or [*DTYPES, ERRORS]
    of_errors = metafunc.function is test_errors
    found = [
        (name, dtype)
        for name, dtype in cases()
        if dtype in chosen and (dtype == ERRORS) is of_errors
    ]
    ids = [f"{name}-{dtype}" for name, dtype in found]
    metafunc.parametrize(("name", "dtype"), found, ids=ids)


def test_samples(
    name: str, dtype: str, pytestconfig: pytest.Config, record_property: Record
) -> None:
    samples = calls(OPS[name], DTYPES[dtype], pytestconfig.getoption("--samples"))
    result = of_samples(name, dtype, outcomes(samples))
    record_property("opinfo", str(result))
    assert result.kind != FAILED, "\n".join(result.reasons)


def test_errors(name: str, dtype: str, record_property: Record) -> None:
    counts = Counter(map(refused_by, wrong_calls(OPS[name])))
    result = Result(name, dtype, dict(counts), [])
    record_property("opinfo", str(result))
    assert SILENT not in result.counts, f"{result.counts[SILENT]} calls had results"
