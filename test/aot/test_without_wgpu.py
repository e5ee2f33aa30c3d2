"""Export and plan where wgpu is not installed, as on a machine that only builds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "wgpu":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())

import torch
from executorch.exir import to_edge_transform_and_lower
from executorch_webgpu import WebGPUPartitioner, cli

model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.ReLU())
exported = torch.export.export(model, (torch.randn(2, 5),))
partitioner = WebGPUPartitioner()
edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
assert partitioner.report.complete, partitioner.report
with open(sys.argv[1], "wb") as file:
    file.write(edge.to_executorch().buffer)
assert cli.main(["dump", sys.argv[1], "--wgsl"]) == 0
assert "wgpu" not in sys.modules
"""


def test_a_program_is_lowered_planned_and_printed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "model.pte")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "forward: 1 ops for " in done.stdout
    assert "aten.linear.default" in done.stdout
    assert "fn main(" in done.stdout
