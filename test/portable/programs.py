"""The programs that all players are held equal on: what they are, and calls of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import accuracy
import op_coverage
import torch
from harness import Function
from op_programs import Call, Calls
from test_dynamic import CASES, Of
from test_failed_calls import FAILURES, FULL, FUNCTIONS, GOOD, Memory
from test_states import Stateful
from torch import nn
from torch.export import Dim
from torch.nn import functional as F
from torchao.quantization import (
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    quantize_,
)
from torchao.quantization.granularity import PerAxis, PerGroup

Inputs = tuple[Any, ...]
RESET = "reset"


@dataclass(frozen=True)
class Fails:
    """A call that every player refuses; `said` is a part of the text. With "", it is
    ExecuTorch that refuses, before a delegate is asked."""

    inputs: Inputs
    said: str
    # Of who plans the graph, where it knows more than that there is no plan.
    by_graph: str = ""


Step = Inputs | Fails | str


@dataclass
class Case:
    """A model, how it is exported, and what is done with the program."""

    model: nn.Module
    steps: Sequence[Step]
    example: Inputs = ()  # or the first step
    shapes: Any = None
    options: dict[str, Any] = field(default_factory=dict)  # of the partitioner
    delegates: int = 1
    strict: bool = False
    # Whether results are compared with eager's, beside each other.
    has_eager: bool = True
    # Limits of that, where the type's own are too narrow.
    rtol: float | None = None
    atol: float | None = None
    # Whether kernels are compiled as this package's own, which Python and C++ then
    # share. Else loops have counters, and all is compiled twice.
    trusts: bool = True

    def __post_init__(self) -> None:
        if not self.example:
            self.example = next(s for s in self.steps if isinstance(s, tuple))


def of(function: Callable[..., Any], *steps: Step, **given: Any) -> Case:
    """A function of tensors; `dims` are the dynamic ones of each input."""
    dims = given.pop("dims", None)
    shapes = None if dims is None else (tuple(dims),)
    return Case(Function(function), steps, shapes=shapes, **given)


# -- a call of every op --------------------------------------------------------------


def op_groups() -> dict[str, list[str]]:
    """The public ops, some dozens to a program."""
    groups: dict[str, list[str]] = {}
    for name in op_coverage.public_ops():
        if not op_coverage.is_undefined(name) and "choose_qparams" not in name:
            family = "elementwise" if name in op_coverage.drawn_ops() else ""
            family = family or accuracy.of(name).name
            groups.setdefault(family, []).append(name)
    return {
        f"{family} {part}": names[first : first + _OPS]
        for family, names in groups.items()
        for part, first in enumerate(range(0, len(names), _OPS))
    }


_OPS = 40


def of_ops(names: Sequence[str]) -> Case:
    calls = [Call(name, torch.int32 if _is_of_ints(name) else None) for name in names]
    inputs = tuple(x for call in calls for x in call.inputs)
    # How near each is to eager is decided elsewhere, by limits of its own.
    return Case(Calls(calls), [inputs], has_eager=False)


def _is_of_ints(name: str) -> bool:
    return any(part in name for part in ("bitwise", "shift", "gcd", "lcm"))


# -- sizes ---------------------------------------------------------------------------

# From the bound down and back: one, small, odd, powers of two and their neighbours.
SIZES = (29, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 28, 29)


def sized(name: str) -> Case:
    """A program of test_dynamic at many sizes."""
    build, make, dims = CASES[name]
    size = Dim("size", min=1, max=max(SIZES))
    model = build().eval()
    shapes: Any = tuple({dim: size} for dim in dims)
    return Case(
        model,
        [*map(make, SIZES), Fails(make(30), "")],
        example=make(7),
        shapes=(shapes,) if isinstance(model, Of) else shapes,
        rtol=1e-4,
        atol=1e-4,
    )


def wide_sizes() -> Case:
    """Products whose tiles depend on the size."""
    model = nn.Sequential(nn.Linear(96, 130), nn.ReLU(), nn.Linear(130, 8))
    sizes = (1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 1, 256)
    steps = [(torch.randn(n, 96),) for n in sizes]
    size = Dim("size", min=1, max=256)
    given = {"example": steps[4], "shapes": ({0: size},), "trusts": False}
    return Case(model, steps, atol=1e-4, **given)


def two_sizes() -> Case:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x @ y.t(), torch.cat((x, y)), x.size(0) * 2 + y.size(0), x.sum(1)

    a, b = Dim("a", min=1, max=24), Dim("b", min=1, max=40)
    pairs = ((7, 5), (24, 40), (1, 1), (2, 40), (24, 2), (13, 13), (17, 33), (24, 40))
    steps = [(torch.randn(n, 16), torch.randn(m, 16)) for n, m in pairs]
    bad = (torch.randn(25, 16), torch.randn(5, 16))
    return of(function, *steps, Fails(bad, ""), dims=[{0: a}, {0: b}], atol=1e-4)


def from_four() -> Case:
    """A range that does not begin at one."""
    size = Dim("size", min=4, max=20)
    steps = [(torch.randn(n, 8),) for n in (8, 4, 5, 19, 20, 4)]
    small = "must be in [4, 20], got "
    return of(
        lambda x: (x.softmax(0), x.topk(3, 0).values, x[3]),
        *steps,
        Fails((torch.randn(3, 8),), f"{small}3"),
        Fails((torch.randn(1, 8),), f"{small}1"),
        Fails((torch.randn(0, 8),), f"{small}0"),
        steps[0],
        dims=[{0: size}],
    )


def the_second() -> Case:
    """At one row, which export lets through, there is no second."""
    size = Dim("n", min=2, max=6)
    x = torch.randn(6, 3)
    one = Fails((x[:1],), "no plan for sizes", "k must be in [0, 1], got 2")
    return of(
        lambda x: (x.topk(2, 0).values, x[1], x[-2]),
        *((x,), (x[:2],), one, (x[3:],)),
        dims=[{0: size}],
    )


def inside_an_expression() -> Case:
    """The symbol itself is no extent: only twice it, plus one, is."""
    half = Dim("half", min=2, max=20)
    steps = [(torch.randn(2 * n + 1, 6),) for n in (5, 2, 3, 8, 20, 5)]
    return of(
        lambda x: (x.cumsum(0), x[1:].reshape(-1, 2, 6).mean(1)),
        *steps,
        Fails((torch.randn(8, 6),), "must have shape"),
        steps[1],
        dims=[{0: 2 * half + 1}],
        atol=1e-5,
    )


def tied_extents() -> Case:
    """The same size twice, and twice the size."""
    size = Dim("size", min=2, max=16)
    made = [(torch.randn(n, n), torch.randn(2 * n)) for n in (4, 2, 3, 16, 9, 4)]
    bad = (torch.randn(4, 4), torch.randn(9))
    uneven = (torch.randn(4, 5), torch.randn(8))
    return of(
        lambda x, y: (x @ x + x.t(), y.view(2, -1) + x[0], y.size(0)),
        *made,
        Fails(bad, "must have shape"),
        Fails(uneven, "must have shape"),
        made[0],
        dims=[{0: size, 1: size}, {0: 2 * size}],
        atol=1e-4,
    )


def strided() -> Case:
    """Sizes that are divided, with and without a rest."""
    model = nn.Sequential(
        *(nn.Conv1d(2, 6, 3, stride=2), nn.GELU(), nn.Conv1d(6, 4, 2, stride=3)),
    )
    length = Dim("length", min=12, max=65)
    steps = [(torch.randn(1, 2, n),) for n in (21, 12, 13, 16, 17, 31, 64, 65, 12)]
    return Case(model, steps, shapes=({2: length},), atol=1e-4)


def pictures() -> Case:
    """Convolutions over a plane of any height."""
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU6()),
        *(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.MaxPool2d(2), nn.Conv2d(8, 4, 1)),
        nn.Upsample(scale_factor=2, mode="nearest"),
    )
    height = Dim("height", min=1, max=10)
    steps = [(torch.randn(1, 3, 2 * n, 12),) for n in (4, 1, 2, 3, 10, 4)]
    return Case(model, steps, shapes=({2: 2 * height},), atol=1e-4)


def sizes_out() -> Case:
    """Integers that leave the program, beside what has those sizes."""
    size = Dim("size", min=1, max=33)
    steps = [(torch.randn(n, 4),) for n in (7, 1, 2, 33, 16)]
    return of(
        lambda x: (x.size(0), x + 1, 3 * x.size(0) + 2, x.size(0) // 4),
        *steps,
        dims=[{0: size}],
    )


def live_slice_of_a_constant() -> Case:
    """How much of a table is read depends on the size."""
    size = Dim("size", min=1, max=12)
    return Case(
        Of(lambda m, x: x + m.w[: x.size(0)], w=torch.randn(12, 5)),
        [(torch.randn(n, 5),) for n in (5, 1, 2, 12, 7, 5)],
        shapes=(({0: size},),),
    )


def attention_over_both() -> Case:
    """Queries and keys of different lengths, with a mask."""
    q, k = Dim("q", min=1, max=16), Dim("k", min=1, max=40)

    def inputs(n: int, m: int) -> Inputs:
        heads = (torch.randn(1, 2, each, 16) for each in (n, m, m))
        return (*heads, torch.randn(1, 1, n, m))

    pairs = ((3, 5), (1, 1), (16, 40), (1, 40), (16, 1), (8, 33), (3, 5))
    return of(
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
        *(inputs(*pair) for pair in pairs),
        dims=[{2: q}, {2: k}, {2: k}, {2: q, 3: k}],
        atol=1e-4,
    )


# -- types ---------------------------------------------------------------------------

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def numbers(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 100, shape).to(dtype)


def typed(dtype: torch.dtype) -> Case:
    """In and out as that type, and as others."""

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        total = x.sum() if dtype is not torch.bool else x.any()
        both = torch.where(x > y, x, y)
        return both, x == y, total, x.float() * 0.5, torch.cat((x, y), 1), x.t()

    steps: list[Step] = []
    steps += [(numbers(dtype, 3, 5), numbers(dtype, 3, 5)) for _ in range(3)]
    other = torch.float32 if dtype is not torch.float32 else torch.int32
    wrong = (numbers(other, 3, 5), numbers(dtype, 3, 5))
    flat = (numbers(dtype, 15), numbers(dtype, 3, 5))
    steps += [Fails(wrong, ""), Fails(flat, ""), steps[0]]
    return of(function, *steps, trusts=False)


def extremes() -> Case:
    """What has no neighbours in its type: infinities, NaN, halves that underflow."""
    x = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 65504.0, 1e-7, 1e38])
    return of(
        lambda x, h, b: (x * 1, h * 1, b * 1, x.half(), x.bfloat16(), -x, x.isnan()),
        (x, x.half(), x.bfloat16()),
        has_eager=False,
    )


def long_values() -> Case:
    """int64 is int32 inside: what does not fit is an error, in and out."""
    fits = torch.tensor([2**31 - 1, -(2**31), 0, -1])
    beyond = [torch.tensor([0, bad, 0, 0]) for bad in (2**31, -(2**31) - 1, 2**62)]
    return of(
        lambda x: (x * 1, x // 2, x < 0),
        (fits,),
        *(Fails((bad,), "int64 values must fit int32") for bad in beyond),
        (fits,),
    )


def long_results() -> Case:
    x = torch.tensor([1, 2, 3])
    large = torch.tensor([2**30, 1, 2])
    said = "an int64 must fit int32 on the GPU"
    return of(lambda x: x * x + x, (x,), Fails((large,), said), (x,))


def divided_by() -> Case:
    x, y = torch.tensor([7, 8, 9]), torch.tensor([2, 3, -4])
    zero = torch.tensor([2, 0, 1])
    return of(lambda x, y: (x // y, x % y), (x, y), Fails((x, zero), "got 0"), (x, y))


def indices() -> Case:
    """An index out of range, of either sign."""
    table = nn.Embedding(11, 3)
    good = torch.tensor([[10, 0], [1, 2]])
    return Case(
        table,
        [
            (good,),
            Fails((torch.tensor([[1, 11], [0, 0]]),), "got 11"),
            Fails((torch.tensor([[1, -1], [0, 0]]),), "got -1"),
            Fails((torch.tensor([[1, 2**40], [0, 0]]),), "int64 values must fit"),
            Fails((good.int(),), ""),
            Fails((good[0],), ""),
            Fails((good, good), ""),
            (good,),
        ],
    )


def places() -> Case:
    x, at, y = torch.randn(5, 4), torch.tensor([4, 0]), torch.randn(2, 4)
    bad = torch.tensor([5, 0])
    return of(
        lambda x, at, y: (x[at], x.index_put((at,), y)),
        *((x, at, y), Fails((x, bad, y), "got 5"), (x, at - 5, y), (x, at, y)),
    )


# -- shapes --------------------------------------------------------------------------


def empty() -> Case:
    return of(
        lambda x, y: (x + 1, torch.cat([x, y]), x.sum(0), x.t()),
        (torch.randn(0, 3), torch.randn(2, 3)),
    )


def scalars() -> Case:
    steps = [(torch.randn(2, 3), torch.tensor(2.5 + n)) for n in range(2)]
    return of(lambda x, s: (x * s, s + 1, x.sum(), x.argmax(), s.exp()), *steps)


def many_dimensions() -> Case:
    x = torch.randn(2, 1, 3, 2, 1, 2, 3, 2)
    return of(lambda x: (x.permute(7, 1, 5, 3, 0, 2, 4, 6) * 2, x.sum((0, 3, 6))), (x,))


def channels_last() -> Case:
    x = torch.randn(2, 3, 5, 7).to(memory_format=torch.channels_last)
    return of(lambda x: (x * 2, (x + 1).contiguous(), x.mean(1)), (x,))


def made_channels_last() -> Case:
    x = torch.randn(2, 3, 5, 7)
    return of(lambda x: x.to(memory_format=torch.channels_last) + 1, (x,))


def views_out() -> Case:
    """Results that are views of one another and of inputs, and one twice."""

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x + y
        return z, z.t(), z[1:], y.reshape(-1), z.sum(), z * 1, z * 1

    return of(function, *[(torch.randn(3, 5), torch.randn(3, 5)) for _ in range(2)])


def nothing_computed() -> Case:
    """Constants alone: no dispatch depends on the input."""
    return Case(
        Of(lambda m, x: (m.w * 2, x + 1), w=torch.randn(3, 4)), [(torch.randn(2),)]
    )


def many_elements() -> Case:
    """A grid that is folded into two dimensions."""
    x = torch.randint(-1000, 1000, (65536 * 64 + 3,), dtype=torch.int32)
    return of(lambda x: x * 2 + 1, (x,))


# -- states --------------------------------------------------------------------------


def stateful(function: Callable[..., Any]) -> Case:
    steps: list[Step] = [(torch.randn(1, 3),) for _ in range(4)]
    steps += [RESET, *steps[::-1]]
    return Case(Stateful(function).eval(), steps, trusts=False)


def failing(name: str) -> Case:
    """Calls that fail between good ones, which they must not change."""
    bad = [Fails(inputs, said) for inputs, said in FAILURES.values()]
    if name == "counted":
        first, one = GOOD[0][:2], torch.tensor([1])
        bad = [Fails(*FULL), Fails(*FAILURES["in a cache"])]
        steps = [(*first, one), *bad, (*first, one), RESET, (*first, one)]
    else:
        steps = [each for good in GOOD for each in (*bad, good)]
        steps += [RESET, *GOOD]
    return Case(Memory(FUNCTIONS[name]), steps, example=GOOD[0], has_eager=False)


ROOM = 16


class Cached(nn.Module):
    """A cache by index, masked attention: no op that is not PyTorch's."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        for name in "kv":
            self.register_buffer(name, torch.zeros(1, 2, ROOM, 64, dtype=dtype))
        self.register_buffer("mask", torch.ones(ROOM, ROOM, dtype=torch.bool).tril())

    def forward(self, q: Any, k: Any, v: Any, at: torch.Tensor) -> torch.Tensor:
        self.k[:, :, at] = k
        self.v[:, :, at] = v
        mask = self.mask[at]
        return F.scaled_dot_product_attention(q, self.k, self.v, mask, enable_gqa=True)


def cached(dtype: torch.dtype) -> Case:
    s = Dim("s", min=1, max=8)

    def make(length: int, position: int) -> Inputs:
        heads = [torch.randn(1, count, length, 64).to(dtype) for count in (4, 2, 2)]
        return (*heads, torch.arange(position, position + length))

    steps: list[Step] = [make(*at) for at in ((5, 0), (1, 5), (8, 6), (1, 14), (4, 0))]
    steps += [Fails(make(2, ROOM - 1), "got 16"), make(1, 0), RESET, make(3, 0)]
    shapes = ({2: s}, {2: s}, {2: s}, {0: s})
    tolerance = 2e-2 if dtype is not torch.float32 else 1e-4
    limits = {"rtol": tolerance, "atol": tolerance}
    return Case(Cached(dtype), steps, example=make(3, 0), shapes=shapes, **limits)


class Positioned(nn.Module):
    """llama.update_cache and llama.custom_sdpa, at a position that is an int."""

    def __init__(self) -> None:
        super().__init__()
        for name in "kv":
            self.register_buffer(name, torch.zeros(2, ROOM, 2, 32))
        self.register_buffer("table", torch.randn(ROOM, 8))

    def forward(self, q: Any, k: Any, v: Any, pos: torch.Tensor) -> Any:
        at = pos[-1].item()
        torch._check_is_size(at)
        torch._check(at < ROOM)
        torch._check(at + q.size(1) <= ROOM)
        torch.ops.llama.update_cache(k, self.k, at)
        torch.ops.llama.update_cache(v, self.v, at)
        y = torch.ops.llama.custom_sdpa(q, self.k, self.v, at, None, 0.0, True)
        return y, self.table.narrow(0, at, q.size(1)) * 2


def positioned() -> Case:
    s = Dim("s", min=1, max=8)

    def make(length: int, position: int) -> Inputs:
        heads = [torch.randn(2, length, count, 32) for count in (6, 2, 2)]
        return (*heads, torch.tensor([position]))

    steps: list[Step] = [make(*at) for at in ((5, 0), (1, 5), (1, 6), (8, 7), (1, 15))]
    steps += [
        Fails(make(1, ROOM), "index must be in [0, 16), got 16"),
        Fails(make(5, ROOM - 4), "index must be in [0, 16), got 16"),
        Fails(make(1, -1), "index must be in [0, 16), got -1"),
        Fails(make(9, 0), ""),
        *(make(1, 3), RESET, make(2, 0)),
    ]
    shapes = ({1: s}, {1: s}, {1: s}, None)
    limits = {"rtol": 1e-3, "atol": 1e-3}
    return Case(Positioned(), steps, example=make(3, 2), shapes=shapes, **limits)


# -- layers, with weights as kernels want them ---------------------------------------


class Recipes(nn.Module):
    """One layer for each way of torchao to quantize weights."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(100, 64)
        self.int4 = nn.Linear(64, 36)
        self.rows = nn.Linear(64, 40, bias=False)
        self.dynamic = nn.Linear(64, 40, bias=False)
        self.int8 = nn.Linear(64, 13)
        self.eight = nn.Linear(64, 9)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.table(ids)
        layers = (self.int4, self.rows, self.dynamic, self.int8, self.eight)
        return (x, *(layer(x) for layer in layers))

    def quantized(self) -> Recipes:
        def only(*names: str) -> Callable[[nn.Module, str], bool]:
            return lambda module, path: path in names

        int4 = torch.int4
        quantize_(self, IntxWeightOnlyConfig(int4, PerGroup(32)), only("table", "int4"))
        quantize_(self, IntxWeightOnlyConfig(int4, PerAxis(0)), only("rows"))
        quantize_(self, IntxWeightOnlyConfig(torch.int8, PerAxis(0)), only("eight"))
        quantize_(self, Int8WeightOnlyConfig(), only("int8"))
        config = Int8DynamicActivationIntxWeightConfig(int4, PerGroup(32))
        quantize_(self, config, only("dynamic"))
        return self.eval()


def recipes() -> Case:
    length = Dim("length", min=1, max=13)
    steps = [(torch.randint(0, 100, (2, n)),) for n in (7, 13, 1, 2, 8, 9, 13)]
    bad = Fails((torch.full((2, 3), 100),), "got 100")
    limits = {"rtol": 1e-4, "atol": 1e-4}
    model = Recipes().quantized()
    return Case(model, [*steps, bad], shapes=({1: length},), **limits)


def halves() -> Case:
    """All constants are float16; sizes of one row and of several."""
    model = nn.Sequential(nn.Linear(64, 96), nn.SiLU(), nn.Linear(96, 7)).half()
    size = Dim("size", min=1, max=24)
    steps = [(torch.randn(n, 64).half(),) for n in (5, 1, 2, 17, 24, 5)]
    limits = {"rtol": 1e-2, "atol": 1e-2}
    return Case(model, steps, shapes=({0: size},), **limits)


def half_codes() -> Case:
    """Weights of 8 bits under activations of float16."""
    model = nn.Sequential(nn.Linear(64, 40, dtype=torch.float16)).eval()
    quantize_(model, Int8WeightOnlyConfig())
    limits = {"rtol": 1e-2, "atol": 1e-2}
    return Case(model, [(torch.randn(3, 64).half(),)], **limits)


def layers() -> Case:
    """Weights that are transposed, joined and repeated for their kernels."""

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 10, 3, padding=1)
            self.deep = nn.ConvTranspose2d(10, 5, 2, stride=2)
            self.gate, self.up = (nn.Linear(24, 30, bias=False) for _ in "ab")
            self.norm = nn.LayerNorm(30)
            self.cell = nn.LSTM(30, 6, batch_first=True)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            gated = self.norm(F.silu(self.gate(y)) * self.up(y))
            return self.deep(self.conv(x).relu()), gated, self.cell(gated)[0]

    steps = [(torch.randn(1, 3, 8, 6), torch.randn(2, 4, 24)) for _ in range(2)]
    return Case(Layers().eval(), steps, atol=1e-4, trusts=False)


def one_weight_twice() -> Case:
    """The same data as it is, transposed, and as a table."""
    return Case(
        Of(
            lambda m, x, ids: (x @ m.w, x @ m.w.t(), m.w[ids], m.w.sum(0)),
            w=torch.randn(16, 16),
        ),
        [(torch.randn(3, 16), torch.tensor([15, 0]))],
        atol=1e-4,
    )


# -- several delegates ---------------------------------------------------------------


def with_cpu_between() -> Case:
    """An op that stays behind, between two delegates of live sizes."""
    size = Dim("size", min=1, max=12)
    steps = [(torch.randn(n, 8),) for n in (5, 1, 12, 2, 5)]
    return of(
        lambda x: (torch.atan(x * 2 + 1).cumsum(0) @ x.t()).relu(),
        *steps,
        dims=[{0: size}],
        options={"operator_blocklist": ["aten.atan.default"]},
        delegates=2,
        atol=1e-3,
    )


def states_of_two() -> Case:
    """Two delegates, each with a state of its own."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.zeros(3))
            self.register_buffer("b", torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.a.add_(x)
            y = torch.atan(self.a * 2)
            self.b.mul_(y)
            return self.b + x

    steps: list[Step] = [(torch.randn(3),) for _ in range(3)]
    options = {"operator_blocklist": ["aten.atan.default"]}
    return Case(Two(), [*steps, RESET, *steps], options=options, delegates=2)


def branches() -> Case:
    """Each body of a condition is a delegate."""
    first, second, last = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 4)

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.last = first, second, last

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.cond(
                x.sum() > 0,
                lambda x: torch.relu(self.first(x)),
                lambda x: self.second(x).sigmoid() * 2,
                (x,),
            )
            return self.last(y)

    x = torch.rand(3, 8)
    return Case(Branches().eval(), [(x,), (-x,), (x,)], delegates=4, strict=True)


def _named() -> Iterator[tuple[str, Callable[[], Case]]]:
    for function in (
        *(wide_sizes, two_sizes, from_four, the_second, inside_an_expression),
        *(tied_extents, strided, pictures, sizes_out, live_slice_of_a_constant),
        *(attention_over_both, extremes, long_values, long_results, divided_by),
        *(indices, places, empty, scalars, many_dimensions, channels_last),
        *(made_channels_last, views_out, nothing_computed, many_elements, positioned),
        *(recipes, halves, half_codes, layers, one_weight_twice, with_cpu_between),
        *(states_of_two, branches),
    ):
        yield function.__name__.replace("_", " "), function
    for name in CASES:
        yield f"sizes of {name}", lambda name=name: sized(name)
    for dtype in (*FLOATS, *INTS):
        label = str(dtype).removeprefix("torch.")
        yield f"type {label}", lambda dtype=dtype: typed(dtype)
    for name in ("checked_first", "counted", "checked_late"):
        yield f"failures {name}", lambda name=name: failing(name)
    for dtype in FLOATS:
        label = str(dtype).removeprefix("torch.")
        yield f"cache of {label}", lambda dtype=dtype: cached(dtype)
    for function in STATEFUL:
        yield f"state {function.__name__}", lambda f=function: stateful(f)
    for group, names in op_groups().items():
        yield f"ops {group}", lambda names=names: of_ops(names)


def _stateful() -> tuple[Callable[..., Any], ...]:
    import test_states as t

    return (
        *(t.returned, t.hidden, t.window, t.last_input, t.delay, t.exchange, t.twice),
        t.constants,
    )


STATEFUL = _stateful()
PROGRAMS: dict[str, Callable[[], Case]] = dict(_named())
