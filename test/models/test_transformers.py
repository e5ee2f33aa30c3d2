from __future__ import annotations

import pytest
from harness import check_op
from transformers_zoo import ZOO


@pytest.mark.parametrize("name", ZOO)
def test_architecture_is_delegated_whole_and_equals_eager(name):
    case = ZOO[name]()
    check_op(
        case.module,
        *case.inputs,
        dynamic_shapes=case.dynamic_shapes,
        others=case.others,
        rtol=1e-3,
        atol=1e-4,
    )
