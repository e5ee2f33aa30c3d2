"""The cases: a name to ask for, a title for the table, and a model with inputs.

`make` is called with the same seed in every process, so that all peers get the
same weights and inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Made = tuple[Any, tuple[Any, ...]]  # a torch module and its inputs


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    title: str
    make: Callable[[], Made]

    def build(self) -> Made:
        import torch

        torch.manual_seed(0)
        model, inputs = self.make()
        return model.eval(), inputs


def plus_one(*shape: int) -> Made:
    import torch

    from . import models

    return models.PlusOne(), (torch.randn(*shape),)


def mlp(batch: int) -> Made:
    import torch

    from . import models

    return models.mlp(), (torch.randn(batch, 784),)


def matmul(size: int) -> Made:
    import torch

    from . import models

    return models.Matmul(), (torch.randn(size, size), torch.randn(size, size))


def gemv(size: int) -> Made:
    import torch

    return torch.nn.Linear(size, size), (torch.randn(1, size),)


def vision(name: str) -> Made:
    import torch

    from . import models

    return models.vision(name), (torch.randn(1, 3, 224, 224),)


def minilm(length: int) -> Made:
    import torch

    from . import models

    ids = torch.randint(1000, 20000, (1, length))
    return models.embedder(), (ids, torch.ones(1, length, dtype=torch.int64))


def decoder(length: int, past: int = 0, layers: int = 4) -> Made:
    import torch

    from . import models

    model = models.Decoder(layers)
    caches = [torch.randn(1, 8, past, 64) for _ in range(2 * layers if past else 0)]
    return model, (torch.randint(0, 4096, (1, length)), *caches)


def smollm(length: int, start: int = 0, floats: bool = False) -> Made:
    import torch

    from . import models

    ids = torch.randint(0, 40000, (1, length))
    model = models.smollm(256)
    inputs = (ids, torch.arange(start, start + length))
    return model.dequantized() if floats else model, inputs


def encoder(batch: int, length: int, layers: int) -> Made:
    import torch

    from . import models

    return models.Encoder(layers), (torch.randn(batch, length, 256),)


CASES = [
    Case("add_tiny", "x + 1, 4x8", lambda: plus_one(4, 8)),
    Case("add_1m", "x + 1, 1M", lambda: plus_one(1024, 1024)),
    Case("mlp_b1", "MLP 784-512-512-10, batch 1", lambda: mlp(1)),
    Case("mlp_b64", "MLP 784-512-512-10, batch 64", lambda: mlp(64)),
    Case("mm_512", "matmul 512", lambda: matmul(512)),
    Case("mm_1024", "matmul 1024", lambda: matmul(1024)),
    Case("gemv_2048", "linear 2048x2048, batch 1", lambda: gemv(2048)),
    Case("mobilenet", "MobileNetV2, 224x224", lambda: vision("mobilenet_v2")),
    Case("resnet", "ResNet18, 224x224", lambda: vision("resnet18")),
    Case("minilm", "MiniLM-L6, 128 tokens", lambda: minilm(128)),
    Case("prefill", "decoder 4x512, prefill 64", lambda: decoder(64)),
    Case("step", "decoder 4x512, one step at 128", lambda: decoder(1, 127)),
    Case("smollm_prefill", "SmolLM2-135M 4-bit, prefill 64", lambda: smollm(64)),
    Case("smollm_step", "SmolLM2-135M 4-bit, one step", lambda: smollm(1, 128)),
]

# The same weights as floats, beside those in CASES: see llm.py.
FLOATS = [
    Case(
        "smollm_float_prefill",
        "SmolLM2-135M float32, prefill 64",
        lambda: smollm(64, floats=True),
    ),
    Case(
        "smollm_float_step",
        "SmolLM2-135M float32, one step",
        lambda: smollm(1, 128, floats=True),
    ),
]

SCALING = [
    *(
        Case(f"batch_{n}", f"MLP, batch {n}", lambda n=n: mlp(n))
        for n in (1, 4, 16, 64, 256)
    ),
    *(
        Case(
            f"length_{n}",
            f"encoder of 2 layers, {n} tokens",
            lambda n=n: encoder(1, n, 2),
        )
        for n in (16, 64, 128, 256)
    ),
    *(
        Case(
            f"layers_{n}",
            f"encoder of 64 tokens, {n} layers",
            lambda n=n: encoder(1, 64, n),
        )
        for n in (1, 2, 4)
    ),
]


def find(name: str) -> Case:
    for case in CASES + FLOATS + SCALING:
        if case.name == name:
            return case
    names = ", ".join(case.name for case in CASES)
    raise SystemExit(f"benchmarks: case must be one of {names}, got {name!r}")
