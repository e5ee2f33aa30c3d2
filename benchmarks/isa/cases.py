"""The cases: one op each, with the work that it cannot avoid, and whole models.

`family` and `args` say what an op computes; `ours.py` has it as a torch module,
`theirs.py` as an ONNX model. Models are those of `benchmarks/cases.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import cases as programs

HIDDEN = 2048  # features of the linear cases, in and out
SIZE = 56  # of the pictures, high and wide
HEADS, HEAD = 12, 64
GROUP = 32  # weights of 4 bits that share a scale
MODEL = "model"


@dataclass(frozen=True)
class Case:
    """One row of the tables."""

    name: str
    title: str
    family: str
    args: tuple[int, ...]
    fma: int  # multiply-adds
    elements: float  # that must be read or written, in elements of the type
    half: bool = False  # float16 instead of float32
    extra: int = 0  # bytes that do not depend on the type

    @property
    def is_model(self) -> bool:
        return self.family == MODEL

    @property
    def bytes(self) -> float:
        return self.elements * (2 if self.half else 4) + self.extra


def _matmul(n: int, half: bool = False) -> Case:
    return _named(f"matmul{n}", f"matmul {n}", "matmul", (n,), n**3, 3 * n * n, half)


def _linear(rows: int, half: bool = False) -> Case:
    moved = HIDDEN**2 + 2 * rows * HIDDEN
    title = f"linear {HIDDEN}x{HIDDEN}, {rows} row{'s' * (rows > 1)}"
    fma = rows * HIDDEN**2
    return _named(f"linear_b{rows}", title, "linear", (rows,), fma, moved, half)


def _conv(
    name: str, title: str, sizes: tuple[int, int, int, int], half: bool = False
) -> Case:
    channels, filters, kernel, groups = sizes
    fma = filters * channels // groups * kernel**2 * SIZE**2
    moved = (channels + filters) * SIZE**2
    return _named(name, title, "conv", sizes, fma, moved, half)


def _attention(name: str, queries: int, keys: int, half: bool = False) -> Case:
    fma = 2 * HEADS * queries * keys * HEAD
    moved = 2 * HEADS * HEAD * (queries + keys)
    title = f"attention, {queries} quer{'ies' if queries > 1 else 'y'}, {keys} keys"
    return _named(name, title, "attention", (queries, keys), fma, moved, half)


def _packed(name: str, rows: int, half: bool = False) -> Case:
    title = f"4-bit linear {HIDDEN}x{HIDDEN}, {rows} row{'s' * (rows > 1)}"
    moved = HIDDEN**2 / GROUP + 2 * rows * HIDDEN
    fma = rows * HIDDEN**2
    return _named(name, title, "packed", (rows,), fma, moved, half, HIDDEN**2 // 2)


def _named(
    name: str,
    title: str,
    family: str,
    args: tuple[int, ...],
    fma: int,
    elements: float,
    half: bool,
    extra: int = 0,
) -> Case:
    if half:
        name, title = f"{name}_f16", f"{title}, f16"
    return Case(name, title, family, args, fma, elements, half, extra)


_C3 = ("conv3x3", "conv 3x3, 64 to 64", (64, 64, 3, 1))
_PIXELS = SIZE**2

CASES = (
    _matmul(512),
    _matmul(1024),
    _matmul(4096),
    _matmul(1024, half=True),
    _linear(1),
    _linear(8),
    _linear(512),
    _linear(1, half=True),
    _conv(*_C3),
    _conv(*_C3, half=True),
    _conv("depthwise", "conv 3x3, depthwise, 64", (64, 64, 3, 64)),
    _conv("pointwise", "conv 1x1, 64 to 128", (64, 128, 1, 1)),
    Case("softmax", "softmax 512x1024", "softmax", (512, 1024), 0, 2 * 512 * 1024),
    Case("layernorm", "layer norm 512x768", "layernorm", (512, 768), 0, 2 * 512 * 768),
    Case("gelu", "gelu 512x3072", "gelu", (512, 3072), 0, 2 * 512 * 3072),
    Case("add", "add 512x3072", "add", (512, 3072), 0, 3 * 512 * 3072),
    _attention("attn_prefill", 128, 128),
    _attention("attn_prefill", 128, 128, half=True),
    _attention("attn_decode", 1, 1024),
    _packed("q4_decode", 1),
    _packed("q4_prefill", 64),
    _packed("q4_decode", 1, half=True),
    _packed("q4_prefill", 64, half=True),
    Case(
        "int8conv",
        "conv 3x3, 64 to 64, int8",
        "int8conv",
        (64,),
        64 * 64 * 9 * _PIXELS,
        0,
        extra=2 * 64 * _PIXELS,
    ),
)

MODELS = tuple(
    Case(name, programs.find(name).title, MODEL, (), 0, 0)
    for name in ("mobilenet", "resnet", "minilm", "smollm_prefill", "smollm_step")
)


def find(name: str) -> Case:
    for case in CASES + MODELS:
        if case.name == name:
            return case
    names = ", ".join(case.name for case in CASES + MODELS)
    raise SystemExit(f"isa: case must be one of {names}, got {name!r}")
