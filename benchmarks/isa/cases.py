"""The cases: one op each, with the work that it cannot avoid, and whole models.

`family` and `args` say what an op computes; `ours.py` has it as a torch module,
`theirs.py` as an ONNX model. Models are those of `benchmarks/cases.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .. import cases as programs

HIDDEN = 2048  # features of the linear cases, in and out, where not said
SIZE = 56  # of the pictures, high and wide, where not said
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
    is_unseen: bool = False  # no kernel was tuned with it in view

    @property
    def is_model(self) -> bool:
        return self.family == MODEL

    @property
    def bytes(self) -> float:
        return self.elements * (2 if self.half else 4) + self.extra


def _matmul(n: int, half: bool = False) -> Case:
    return _product(f"matmul{n}", f"matmul {n}", n, n, n, half)


def _product(name: str, title: str, m: int, k: int, n: int, half: bool = False) -> Case:
    moved = m * k + k * n + m * n
    return _named(name, title, "matmul", (m, k, n), m * k * n, moved, half)


def _linear(
    rows: int, half: bool = False, sizes: tuple[int, int] = (HIDDEN, HIDDEN)
) -> Case:
    k, n = sizes
    name = f"linear_b{rows}" if sizes == (HIDDEN, HIDDEN) else f"linear_{k}x{n}_b{rows}"
    title = f"linear {k}x{n}, {_rows(rows)}"
    moved = k * n + rows * (k + n)
    return _named(name, title, "linear", (rows, k, n), rows * k * n, moved, half)


def _rows(count: int) -> str:
    return f"{count} row{'s' * (count > 1)}"


def _conv(
    name: str,
    title: str,
    sizes: tuple[int, int, int, int],
    half: bool = False,
    stride: int = 1,
    size: int = SIZE,
) -> Case:
    channels, filters, kernel, groups = sizes
    made = -(-size // stride)  # of odd kernels, padded by their half
    weights = filters * channels // groups * kernel**2
    moved = channels * size**2 + filters * made**2 + weights
    args = (*sizes, stride, size)
    return _named(name, title, "conv", args, weights * made**2, moved, half)


def _attention(
    name: str,
    queries: int,
    keys: int,
    half: bool = False,
    heads: tuple[int, int, int] = (12, 12, 64),
) -> Case:
    """Heads of queries, heads of keys, and the size of a head."""
    count, shared, size = heads
    fma = 2 * count * queries * keys * size
    moved = 2 * size * (count * queries + shared * keys)
    title = f"attention, {queries} quer{'ies' if queries > 1 else 'y'}, {keys} keys"
    if heads != (12, 12, 64):
        over = f" over {shared}" if shared < count else ""
        title += f", {count} heads{over} of {size}"
    return _named(name, title, "attention", (queries, keys, *heads), fma, moved, half)


def _packed(
    name: str, rows: int, half: bool = False, sizes: tuple[int, int] = (HIDDEN, HIDDEN)
) -> Case:
    k, n = sizes
    title = f"4-bit linear {k}x{n}, {_rows(rows)}"
    moved = k * n / GROUP + rows * (k + n)
    args, fma = (rows, k, n), rows * k * n
    return _named(name, title, "packed", args, fma, moved, half, k * n // 2)


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
        extra=2 * 64 * _PIXELS + 64 * 64 * 9,
    ),
)

_BATCHES = (1, 5, 16, 100)  # rows: of a token, of speculation, of short and long texts
_WIDE = (4096, 4096)
_MLP = (4096, 11008)
_STRIDED = ("conv5x5s2", "conv 5x5, stride 2, 64 to 128", (64, 128, 5, 1))
_GROUPED_HEADS = (32, 8, 128)


def _rows_case(family: str, title: str, rows: int, columns: int) -> Case:
    name = f"{family}_{rows}x{columns}"
    shape = f"{title} {rows}x{columns}"
    return Case(name, shape, family, (rows, columns), 0, 2 * rows * columns)


_UNSEEN = (
    _product("matmul1000", "matmul 1000", 1000, 1000, 1000),
    _product("matmul1000", "matmul 1000", 1000, 1000, 1000, half=True),
    _product("matmul_clip", "matmul 77x768x3072", 77, 768, 3072),
    _product("matmul_vit", "matmul 197x768x768", 197, 768, 768),
    *(_linear(rows, sizes=(768, 3072)) for rows in _BATCHES),
    *(_linear(rows, sizes=_WIDE) for rows in _BATCHES),
    *(_linear(rows, half=True, sizes=_WIDE) for rows in (1, 16)),
    _conv(*_STRIDED, stride=2),
    _conv(*_STRIDED, half=True, stride=2),
    _conv("conv7x7s2", "conv 7x7, stride 2, 3 to 64", (3, 64, 7, 1), False, 2, 224),
    _conv("grouped4", "conv 3x3, 64 to 64, 4 groups", (64, 64, 3, 4)),
    _conv("grouped32", "conv 3x3, 128 to 128, 32 groups", (128, 128, 3, 32)),
    _conv(
        "depthwise5x5s2",
        "conv 5x5, depthwise, 72, stride 2",
        (72, 72, 5, 72),
        stride=2,
    ),
    _conv("pointwise7", "conv 1x1, 960 to 160, 7x7", (960, 160, 1, 1), size=7),
    _attention("attn_h80", 257, 257, heads=(16, 16, 80)),
    _attention("attn_h128", 100, 100, heads=(32, 32, 128)),
    _attention("attn_decode2048", 1, 2048),
    _attention("gqa_decode", 1, 2048, heads=_GROUPED_HEADS),
    _attention("gqa_decode", 1, 2048, half=True, heads=_GROUPED_HEADS),
    _rows_case("layernorm", "layer norm", 100, 4096),
    _rows_case("rmsnorm", "RMS norm", 100, 4096),
    _rows_case("rmsnorm", "RMS norm", 1, 4096),
    _rows_case("softmax", "softmax", 12 * 197, 197),
    *(_packed(f"q4_mlp_b{rows}", rows, sizes=_MLP) for rows in _BATCHES),
    *(_packed(f"q4_mlp_b{rows}", rows, half=True, sizes=_MLP) for rows in (1, 100)),
)
UNSEEN = tuple(replace(case, is_unseen=True) for case in _UNSEEN)

MODELS = tuple(
    Case(name, programs.find(name).title, MODEL, (), 0, 0)
    for name in ("mobilenet", "resnet", "minilm", "smollm_prefill", "smollm_step")
)
# Names that stand for several cases.
GROUPS = {"seen": CASES, "unseen": UNSEEN, "models": MODELS}


_EVERY = {case.name: case for group in GROUPS.values() for case in group}


def find(name: str) -> Case:
    if name not in _EVERY:
        names = ", ".join([*GROUPS, *_EVERY])
        raise SystemExit(f"isa: case must be one of {names}, got {name!r}")
    return _EVERY[name]


def expand(names: Sequence[str]) -> list[Case]:
    """Cases by their names, or by that of a group."""
    return [case for name in names for case in GROUPS.get(name) or (find(name),)]
