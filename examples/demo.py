"""Two published models on the GPU, through the standard ExecuTorch runtime.

Exports an image classifier and a sentence embedder, runs them, and shows the
results beside eager PyTorch and, for time, beside ExecuTorch's XNNPACK delegate.
"""

from __future__ import annotations

import logging
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)  # torchao and torch.export talk to their developers

import models
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from tqdm import tqdm

from executorch_webgpu import WebGPUPartitioner, stats

ROUNDS = 10
SENTENCES = [
    "A cat is sleeping on the sofa.",
    "On the couch, a kitten takes a nap.",
    "The stock market fell sharply on Monday.",
]


@contextmanager
def steps(title: str, count: int) -> Iterator[Callable[[str], None]]:
    """A progress bar; the function it gives names the step that begins."""
    layout = "{desc:64} {bar:20}"
    with tqdm(total=count, desc=title, bar_format=layout, file=sys.stdout) as bar:

        def begin(name: str) -> None:
            bar.set_description_str(f"{title}: {name}")
            bar.update()

        yield begin


@contextmanager
def quiet() -> Iterator[None]:
    """Drops what C++ libraries say about the machine on standard error."""
    kept = os.dup(2)
    with open(os.devnull, "w") as sink:
        os.dup2(sink.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def load(
    model: torch.nn.Module, inputs: tuple[Any, ...], shapes: Any, partitioner: Any
) -> Callable[..., list[torch.Tensor]]:
    """A model, exported, lowered and loaded by the standard runtime."""
    exported = torch.export.export(model, inputs, dynamic_shapes=shapes)
    lowered = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    buffer = lowered.to_executorch().buffer
    program = Runtime.get().load_program(buffer)
    method = program.load_method("forward")
    if method is None:
        raise SystemExit("the program could not be loaded; see the log above")

    def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
        # The runtime's method needs its program and its bytes to stay alive.
        _ = (program, buffer)
        return list(method.execute(list(inputs)))

    return run


def milliseconds(run: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run(*inputs)
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def show(
    name: str,
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    dynamic_shapes: Any = None,
) -> torch.Tensor:
    """Runs a model everywhere and prints how the results and times compare."""
    partitioner = WebGPUPartitioner()
    with torch.no_grad(), steps(name, 4) as begin:
        begin("export for WebGPU and compile its kernels")
        ours = load(model, inputs, dynamic_shapes, partitioner)
        begin("export for XNNPACK")
        with quiet():
            theirs = load(model, inputs, dynamic_shapes, XnnpackPartitioner())
        begin("run")
        (result,) = ours(*inputs)
        expected = model(*inputs)
        begin("measure")
        times = milliseconds(ours, inputs), milliseconds(theirs, inputs)
    report = partitioner.report
    total = sum(report.delegated.values()) + len(report.fallbacks)
    print(f"  delegated        {sum(report.delegated.values())} of {total} ops")
    print(f"  off from eager   {(result - expected).abs().max():.1e} at most")
    print(f"  time per run     {times[0]:.1f} ms, XNNPACK on the CPU {times[1]:.1f} ms")
    return result


def main() -> None:
    with torch.no_grad():
        scores = show(
            "EfficientNet-Lite0", models.classifier(), (models.picture("chelsea.png"),)
        )
    names = models.labels()
    print("  a photograph of a cat looks like:")
    best = scores.softmax(1)[0].topk(5)
    for share, index in zip(best.values, best.indices):
        print(f"    {share:6.1%}  {names[index]}")

    embedder = models.SentenceEmbedder()
    vectors = show(
        "all-MiniLM-L6-v2",
        embedder,
        embedder.tokenize(SENTENCES),
        models.embedder_shapes(),
    )
    print("  how alike sentences are:")
    for one, two in ((0, 1), (0, 2)):
        alike = float(vectors[one] @ vectors[two])
        print(f"    {alike:5.2f}  {SENTENCES[one]}  /  {SENTENCES[two]}")
    print(f"adapter: {stats().adapter}")


if __name__ == "__main__":
    main()
