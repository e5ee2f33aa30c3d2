"""ExecuTorch's profile of a program names every dispatch of ours."""

from __future__ import annotations

from pathlib import Path

import torch
from executorch.devtools import Inspector
from executorch.extension.pybindings.portable_lib import (
    _load_for_executorch_from_buffer,
)
from harness import compare, lower
from torch import nn

from executorch_webgpu import stats


def test_every_dispatch_is_an_event(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Softmax(1)).eval()
    x = torch.randn(3, 7)
    program = lower(model, (x,))  # the module refers to its bytes
    module = _load_for_executorch_from_buffer(program.buffer, enable_etdump=True)
    before = stats().native_submits
    with torch.no_grad():
        compare(module.forward((x,)), [model(x)])
    assert stats().native_submits == before + 2
    path = tmp_path / "profile.etdp"
    module.write_etdump_result_to_file(str(path))
    events = [e for block in Inspector(str(path)).event_blocks for e in block.events]
    ours = [event for event in events if event.is_delegated_op]
    assert [event.name.split(":")[0] for event in ours] == [
        "#0 aten.linear.default",
        "#1 aten._softmax.default",
    ]
    (call,) = [event for event in events if event.name == "DELEGATE_CALL"]
    assert 0 < sum(event.perf_data.avg for event in ours) <= call.perf_data.avg
