"""What lowering costs: CPU seconds, those of ExecuTorch and ours, beside XNNPACK's.

    python -m benchmarks lowering [--turns N] [--publish]

Each model is exported and lowered by a process of its own for each backend, in turns;
before it starts its clock, the process has lowered a single layer, so that imports and
tables that are made once are not counted. Times are of the CPU, the least of all turns.
With --publish the table is written into docs/performance.md.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from . import report

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
MARKER = "lowering"
TITLES = {
    "mobilenet": "MobileNetV2, 224x224",
    "llama": "ExecuTorch's Llama, 2 layers, 8da4w, KV cache",
}
# To see that the command works.
TRIAL = {"layer": "a linear layer"}
BACKENDS = ("webgpu", "xnnpack")


@dataclass(frozen=True)
class Times:
    """CPU seconds of one process."""

    export: float  # torch.export
    lower: float  # to_edge_transform_and_lower
    emit: float  # to_executorch
    ours: float  # of these two, this backend's own

    @property
    def total(self) -> float:
        return self.lower + self.emit


def main(argv: Sequence[str]) -> int:
    if argv and argv[0] == "lower":
        print(json.dumps(asdict(_lower(argv[1], argv[2]))))
        return 0
    parser = argparse.ArgumentParser(
        prog="benchmarks lowering",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = {**TITLES, **TRIAL}
    parser.add_argument("--cases", nargs="+", choices=names, default=[*TITLES])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--publish", action="store_true", help=f"write into {PAGE.name}"
    )
    options = parser.parse_args(argv)
    if options.publish and options.cases != [*TITLES]:
        raise SystemExit(
            f"benchmarks lowering: --publish must have all cases, got {options.cases}"
        )
    results = {name: measure(name, options.turns) for name in options.cases}
    made = section(results, options.turns)
    print(made)
    if options.publish and not report.publish(PAGE, MARKER, made):
        raise SystemExit(f"benchmarks lowering: {PAGE} must have markers, got none")
    return 0


def measure(name: str, turns: int) -> dict[str, Times]:
    """By backend; of each number the least, since other work only adds to it."""
    runs: dict[str, list[Times]] = {backend: [] for backend in BACKENDS}
    for _ in range(turns):
        for backend in BACKENDS:
            done = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "benchmarks",
                    "lowering",
                    "lower",
                    name,
                    backend,
                ],
                cwd=ROOT,
                # Idle threads of torch would spin, which is CPU time, too.
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=True,
            )
            runs[backend].append(Times(**json.loads(done.stdout.splitlines()[-1])))
            print(f"{name} {backend} {runs[backend][-1]}", file=sys.stderr)
    return {
        backend: Times(
            **{
                each.name: min(getattr(run, each.name) for run in made)
                for each in fields(Times)
            }
        )
        for backend, made in runs.items()
    }


# -- in a process of its own -----------------------------------------------------------


def _lower(name: str, backend: str) -> Times:
    lower(_layer(), backend)
    return lower(_MODELS[name](), backend)


def lower(export: Callable[[], Any], backend: str) -> Times:
    """The times of an export and of what follows it."""
    import torch
    from executorch.exir import to_edge_transform_and_lower

    partitioner, config = _backend(backend)
    marks = [time.process_time()]
    with torch.no_grad():
        program = export()
        marks.append(time.process_time())
        edge = to_edge_transform_and_lower(
            program, partitioner=[partitioner], compile_config=config
        )
        marks.append(time.process_time())
        edge.to_executorch()
        marks.append(time.process_time())
    seconds = [after - before for before, after in itertools.pairwise(marks)]
    made = getattr(partitioner, "report", None)
    return Times(*seconds, sum(made.seconds.values()) if made else 0.0)


def _backend(name: str) -> tuple[Any, Any]:
    if name == "webgpu":
        from executorch_webgpu import WebGPUPartitioner

        return WebGPUPartitioner(), None
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import (
        XnnpackPartitioner,
    )
    from executorch.backends.xnnpack.utils.configs import (
        get_xnnpack_edge_compile_config,
    )

    return XnnpackPartitioner(), get_xnnpack_edge_compile_config()


def _layer() -> Callable[[], Any]:
    import torch

    return lambda: torch.export.export(torch.nn.Linear(3, 4), (torch.ones(2, 3),))


def _mobilenet() -> Callable[[], Any]:
    import torch

    from . import models

    model = models.vision("mobilenet_v2").eval()
    return lambda: torch.export.export(model, (torch.randn(1, 3, 224, 224),))


def _llama() -> Callable[[], Any]:
    """By ExecuTorch's own flow, weights being random."""
    import torch
    from executorch.examples.models.llama import export_llama_lib
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs
    from executorch.extension.llm.export.config.llm_config import LlmConfig

    sizes = {"dim": 160, "n_heads": 10, "n_kv_heads": 2, "hidden_dim": 192}
    params = {**sizes, "vocab_size": 101, "n_layers": 2, "norm_eps": 1e-5}
    folder = Path(tempfile.mkdtemp())
    (folder / "params.json").write_text(json.dumps(params))
    model = construct_transformer(ModelArgs(**params))
    torch.save(model.state_dict(), folder / "weights.pth")
    config = LlmConfig()
    config.base.params = str(folder / "params.json")
    config.base.checkpoint = str(folder / "weights.pth")
    config.export.output_dir = str(folder)
    config.export.max_seq_length = config.export.max_context_length = 128
    config.model.use_kv_cache = config.model.enable_dynamic_shape = True
    config.quantization.qmode = "8da4w"
    config.quantization.group_size = 32
    manager = export_llama_lib._prepare_for_llama_export(config)
    return lambda: manager._export()


_MODELS = {"mobilenet": _mobilenet, "llama": _llama, "layer": _layer}


# -- the table -------------------------------------------------------------------------


def section(results: dict[str, dict[str, Times]], turns: int) -> str:
    head = ("CPU seconds", "torch.export", "lowering", "of these ours", "XNNPACK's")
    lines = [f"| {' | '.join(head)} |", "|---|---:|---:|---:|---:|"]
    for name, times in results.items():
        ours, theirs = (times[backend] for backend in BACKENDS)
        share = f"{ours.ours:.2f} ({100 * ours.ours / ours.total:.1f}%)"
        cells = ({**TITLES, **TRIAL}[name], f"{ours.export:.1f}", f"{ours.total:.1f}")
        lines.append(f"| {' | '.join(cells)} | {share} | {theirs.total:.1f} |")
    return "\n".join(
        [
            f"Measured on {datetime.date.today()} with `python -m benchmarks lowering"
            f" --turns {turns}`, {os.cpu_count()} cores, {platform.system()}"
            f" {platform.machine()}.",
            "",
            *lines,
        ]
    )
