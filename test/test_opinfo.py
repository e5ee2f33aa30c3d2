"""A sample of test/opinfo: ops that run on the GPU alone, many in one program.

docs/opinfo.md says which they are: an op that it does not list for a type must run
there. `python test/opinfo` takes more samples of every op.
"""

from __future__ import annotations

import pytest
from opinfo import results
from opinfo.outcome import WHOLE, outcomes
from opinfo.samples import first_call, names

# In one program: more take longer than they save.
_TOGETHER = 40


def programs(dtype: str) -> list[list[str]]:
    listed = results.listed(dtype)
    ops = [name for name in names(dtype) if name not in listed]
    return [ops[i : i + _TOGETHER] for i in range(0, len(ops), _TOGETHER)]


@pytest.mark.parametrize("ops", programs("float32"), ids=lambda ops: ops[0])
def test_what_is_not_listed_runs_on_the_gpu_alone(ops: list[str]) -> None:
    samples = [first_call(name, "float32") for name in ops]
    wrong = [
        f"{call}: {found.kind}: {'; '.join(found.reasons)}"
        for call, found in zip(samples, outcomes(samples), strict=True)
        if found.kind != WHOLE
    ]
    assert not wrong, "\n".join(wrong)
