"""The test: an op in a type, or its calls that torch refuses.

Not collected with the project's own tests; `python test/opinfo` names this file.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .errors import refused_by
from .outcome import FAILED, outcomes
from .results import ERRORS, key_of, of_errors, of_samples
from .samples import DTYPES, OPS, calls, names, wrong_calls


def cases() -> list[tuple[str, str]]:
    """Every op with every type of samples that it has, or with its errors."""
    typed = [(name, dtype) for dtype in DTYPES for name in names(dtype)]
    refusing = [name for name, op in OPS.items() if op.error_inputs_func is not None]
    return typed + [(name, ERRORS) for name in refusing]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("--dtype") or [*DTYPES, ERRORS]
    found = [(name, dtype) for name, dtype in cases() if dtype in chosen]
    ids = [key_of(name, dtype) for name, dtype in found]
    metafunc.parametrize(("name", "dtype"), found, ids=ids)


def test_op(
    name: str,
    dtype: str,
    pytestconfig: pytest.Config,
    record_property: Callable[[str, object], None],
) -> None:
    if dtype == ERRORS:
        result = of_errors(name, map(refused_by, wrong_calls(name)))
    else:
        samples = calls(name, dtype, pytestconfig.getoption("--samples"))
        result = of_samples(name, dtype, outcomes(samples))
    record_property("opinfo", str(result))
    assert result.kind != FAILED, f"{result.counts} {'; '.join(result.reasons)}"
