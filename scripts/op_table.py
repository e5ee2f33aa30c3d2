"""Writes docs/ops.md: what every op supports, its accuracy, and core ATen's coverage.

    python scripts/op_table.py [--check]

Each op is called on tensors of every type and rank, and with dynamic sizes. Where
torch accepts them, the op function plans the call as it would at export; the table
shows the answer, so it cannot say more than the code does. Accuracies are
those of the ops' registrations, by which the tests judge. With --check
nothing is written, and the exit status tells whether the file is up to date.
"""

from __future__ import annotations

import argparse
import functools
import logging
import operator
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import FakeTensorMode
from torch.fx import Graph
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
    StrictMinMaxConstraint,
)
from torch.utils import _pytree as pytree
from torch.utils._sympy.value_ranges import ValueRanges

sys.path.append(str(Path(__file__).parent.parent / "test"))

import accuracy
import op_coverage
from op_calls import REFUSALS, Args, Make, call_of
from op_coverage import overload_of

from executorch_webgpu.errors import Unsupported
from executorch_webgpu.export.fx_to_ir import build_node
from executorch_webgpu.plan import registry
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.planner import Planner

PATH = Path(__file__).parent.parent / "docs" / "ops.md"

TYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i32": torch.int32,
    "i64": torch.int64,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}

LABELS = {dtype: label for label, dtype in TYPES.items()}

# Core ATen overloads without a kernel, and why.
ABSENT = {
    "backward ops: training is not this delegate's task": (
        "_adaptive_avg_pool2d_backward.default",
        "avg_pool2d_backward.default",
        "convolution_backward.default",
        "embedding_dense_backward.default",
        "max_pool2d_with_indices_backward.default",
        "native_group_norm_backward.default",
        "native_layer_norm_backward.default",
    ),
    "random numbers: torch's generator is not reproduced on the GPU": (
        "native_dropout.default",
        "rand.default",
        "randn.default",
        "randperm.default",
    ),
    "complex numbers: ExecuTorch's portable kernels serve them on the CPU": (
        "_fft_c2r.default",
        "_fft_r2c.default",
    ),
    "integers of the host, not tensors": (
        "_local_scalar_dense.default",
        "sym_is_contiguous.default",
        "sym_numel.default",
        "sym_size.int",
        "sym_storage_offset.default",
        "sym_stride.int",
    ),
    "changes its argument's storage, which exported graphs never do": (
        "resize_.default",
        "atan2.out",
    ),
    "updates running statistics: training": ("_native_batch_norm_legit.default",),
    "the shape of the result depends on the data": (
        "masked_select.default",
        "nonzero.default",
    ),
}

# What is defined here and undefined in torch.
CERTAIN = {
    "aten.mode.default": "the index is that of the last element that is the mode; in"
    " rows of more than 16, torch's may be any of them. NaN equals nothing",
}

# The ranks that are tried, and the upper bound of a dynamic size.
RANKS = range(9)
LARGEST = 64
# Integer arguments that are sizes of the result: dynamic if the operand's size is.
SIZES = ("size", "shape", "end", "steps", "N", "C")


@dataclass
class Found:
    """What an op function plans: types, ranks, dynamic sizes; refusals by reason."""

    types: list[str] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    dynamic: str = ""
    refused: dict[str, list[str]] = field(default_factory=dict)


class Trial:
    """A call on fake tensors, for the op function to plan."""

    def __init__(self, name: str, make: Make) -> None:
        self.name = name
        self.overload = overload_of(name)
        self.args, self.kwargs = call_of(name, make)
        tensors = self.tensors((self.args, self.kwargs))
        self.main = make.main if make.main is not None else next(iter(tensors), None)
        self.is_typed = make.is_typed
        self.constants = {id(tensor) for tensor in make.constants}

    @staticmethod
    def tensors(tree: Any) -> list[torch.Tensor]:
        return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]

    def sizes(self) -> list[int]:
        """The sizes that can be dynamic: those of the main operand or the result."""
        if self.main is not None:
            return list(dict.fromkeys(self.main.shape))
        return list(dict.fromkeys(n for _, n in self._made_sizes()))

    def _made_sizes(self) -> Iterator[tuple[str, int]]:
        formals = self.overload._schema.arguments
        for formal, arg in zip(formals, self.args):
            if formal.name in SIZES and not isinstance(arg, torch.Tensor):
                yield from ((formal.name, n) for n in pytree.tree_leaves(arg))

    def rank(self) -> int:
        """The rank of the main operand, or of the result."""
        if self.main is not None:
            return self.main.dim()
        return int(self.overload(*self.args, **self.kwargs).dim())

    def is_real(self) -> bool:
        """Whether torch computes the call: on fake tensors it accepts more."""
        try:
            self.overload(*self.args, **self.kwargs)
        except REFUSALS:
            return False
        return True

    def reason(self, dynamic: int | None = None) -> str | None:
        """Empty if the call can be planned, else why not; None if torch itself refuses
        it, or refuses to make all sizes of the value `dynamic` dynamic."""
        env = ShapeEnv() if dynamic is not None else None
        mode = FakeTensorMode(shape_env=env)
        fake = functools.partial(_fake, mode, dynamic)
        known = {id(x): fake(x) for x in self.tensors((self.args, self.kwargs))}
        args, kwargs = pytree.tree_map(
            lambda x: known.get(id(x), x), (self.args, self.kwargs)
        )
        if dynamic is not None:
            size = fake(torch.empty(dynamic)).shape[0]
            args = self._with_size(args, dynamic, size)
        try:
            # As in torch.export; else some kernels ask for numbers.
            symbolic = enable_python_dispatcher() if dynamic else nullcontext()
            with mode, symbolic:
                result = self.overload(*args, **kwargs)
        except REFUSALS:
            return None
        if env is not None and not _is_free(env):
            return None
        constants = {id(known[key]) for key in self.constants}
        return _planned(self.overload, args, kwargs, result, constants)

    def _with_size(self, args: Args, old: int, new: Any) -> Args:
        """The arguments with a size of the result in place of its number."""
        changed = []
        for formal, arg in zip(self.overload._schema.arguments, args):
            if formal.name in SIZES and not isinstance(arg, torch.Tensor):
                arg = pytree.tree_map(lambda n: new if n == old else n, arg)
            changed.append(arg)
        return tuple(changed)


def _is_free(env: ShapeEnv) -> bool:
    """Whether the guards that torch recorded hold at two other dynamic sizes."""
    return all(
        guard.expr.subs(dict.fromkeys(guard.expr.free_symbols, size))
        for guard in env.guards
        for size in (LARGEST // 2, LARGEST)
    )


def _fake(mode: FakeTensorMode, dynamic: int | None, x: torch.Tensor) -> torch.Tensor:
    if dynamic is None:
        return mode.from_tensor(x)
    span = StrictMinMaxConstraint(warn_only=False, vr=ValueRanges(1, LARGEST))
    kinds = [DimDynamic.DYNAMIC if n == dynamic else DimDynamic.STATIC for n in x.shape]
    spans = [span if n == dynamic else None for n in x.shape]
    context = StatelessSymbolicContext(dynamic_sizes=kinds, constraint_sizes=spans)
    return mode.from_tensor(x, symbolic_context=context)


def _planned(
    overload: torch._ops.OpOverload,
    args: Args,
    kwargs: dict[str, Any],
    result: Any,
    constants: set[int],
) -> str:
    graph, names = Graph(), []

    def placeholder(value: Any) -> Any:
        if not isinstance(value, (torch.Tensor, torch.SymInt)):
            return value
        node = graph.placeholder(f"x{len(graph.nodes)}")
        node.meta["val"] = value
        if id(value) in constants:
            names.append(node.name)
        return node

    args, kwargs = pytree.tree_map(placeholder, (args, kwargs))
    node = graph.call_function(overload, args, kwargs)
    node.meta["val"] = result
    # What a call changes is a result, too, once an export has made it functional.
    formals = overload._schema.arguments
    changed = [
        a for f, a in zip(formals, args) if f.alias_info and f.alias_info.is_write
    ]
    if changed:
        result = (result, *(x.meta["val"] for x in changed))
        node.meta["val"] = result
    several = isinstance(result, (list, tuple))
    graph.output(graph.call_function(operator.getitem, (node, 0)) if several else node)
    try:
        built = build_node(None, node, names)  # type: ignore[arg-type]
        planner = Planner(built, AOT_CAPS)
        planner.upper_bound()
        if built.symbols:
            planner.lower_bound()
    except Unsupported as error:
        return str(error).split(": ", 1)[-1].split(", got ")[0]
    return ""


def trial(name: str, dtype: torch.dtype, rank: int | None = None) -> Trial | None:
    """A call; None if there is none that torch accepts."""
    try:
        made = Trial(name, Make(dtype, rank))
    except REFUSALS:
        return None
    # What these ops refuse, they refuse by ending the process.
    asked = not name.startswith("llama.")
    if asked and dtype in (torch.float16, torch.bfloat16):
        # The CPU lacks some ops of these types, which an export may contain.
        return made if trial(name, torch.float32, rank) else None
    return None if asked and not made.is_real() else made


@functools.cache
def support(name: str) -> Found:
    """What an op can be planned for: its types, then ranks and dynamic sizes in one."""
    found = Found()
    good = None
    for dtype in TYPES.values():
        made = trial(name, dtype)
        reason = made.reason() if made else None
        if made is None or reason is None:
            continue
        label = LABELS[dtype if made.main is None or made.is_typed else made.main.dtype]
        if reason:
            found.refused.setdefault(reason, []).append(label)
        elif label not in found.types:
            found.types.append(label)
            good = good or dtype
    if good is not None:
        _find_ranks(name, good, found)
        _find_dynamic(name, good, found)
    return found


def _find_ranks(name: str, dtype: torch.dtype, found: Found) -> None:
    for rank in RANKS:
        made = trial(name, dtype, rank)
        reason = made.reason() if made else None
        if made is None or reason is None:
            continue
        # Nothing of a call may depend on the rank: then it is always the same.
        actual = made.rank()
        if reason:
            found.refused.setdefault(reason, []).append(f"rank {actual}")
        elif actual not in found.ranks:
            found.ranks.append(actual)


def _find_dynamic(name: str, dtype: torch.dtype, found: Found) -> None:
    made = trial(name, dtype)
    assert made is not None
    shape = made.main.shape if made.main is not None else ()
    answers = {size: made.reason(size) for size in made.sizes() if size > 1}
    refused = []
    for size, reason in answers.items():
        if reason:
            dims = [str(dim) for dim, extent in enumerate(shape) if extent == size]
            refused += dims
            found.refused.setdefault(reason, []).append(f"dynamic {' '.join(dims)}")
    if "" in answers.values():
        found.dynamic = f"not {' '.join(refused)}" if refused else "yes"
    else:
        found.dynamic = "no" if refused else "-"


def core_overloads() -> Iterator[str]:
    """The names of all overloads that torch tags as core ATen."""
    for qualified in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, rest = qualified.partition("::")
        base, _, overload = rest.partition(".")
        packet = getattr(torch.ops.aten, base, None) if namespace == "aten" else None
        found = getattr(packet, overload or "default", None)
        if found is not None and torch.Tag.core in found.tags:
            yield f"{base}.{overload or 'default'}"


def is_supported(name: str) -> bool:
    """Whether a core overload runs: as itself or as edge's copying variant."""
    base, overload = name.split(".")
    names = (f"aten.{name}", f"aten.{base}_copy.{overload}")
    return any(
        registry.find(item) is not None and support(item).types for item in names
    )


def accuracy_section() -> list[str]:
    lines = [
        "## Accuracy",
        "",
        "NaN and infinities are as in torch; numbers below the normal ones may be"
        " taken for zero, as WebGPU allows, except where elements only move. The"
        " tests judge every op by these limits (`test/accuracy.py`), on two drivers.",
        "",
        "| accuracy | what the ops do | how near |",
        "|---|---|---|",
    ]
    rows = [limit.accuracy for limit in accuracy.LIMITS]
    return lines + [f"| {row.name} | {row.ops} | {row.near} |" for row in rows]


def core_section() -> list[str]:
    core = list(core_overloads())
    reasons = {name: reason for reason, names in ABSENT.items() for name in names}
    absent = [name for name in core if not is_supported(name)]
    lines = [
        "## Core ATen",
        "",
        f"{len(core) - len(absent)} of the {len(core)} overloads that PyTorch tags as"
        " core have a kernel. The others:",
        "",
        "| overload | why it is absent |",
        "|---|---|",
    ]
    lines += [f"| `{name}` | {reasons.get(name, 'no kernel yet')} |" for name in absent]
    return lines


def listed(aten: bool | None = None) -> list[str]:
    """The ops with a line: all, or those of ATen, or the others."""
    names = op_coverage.public_ops()
    return [name for name in names if aten in (None, name.startswith("aten."))]


def lines_of(names: list[str]) -> list[str]:
    lines = [
        "| op | types | ranks | dynamic | accuracy | test | notes |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in names:
        found = support(name)
        notes = [
            f"{', '.join(what)}: {reason}" for reason, what in found.refused.items()
        ]
        if op_coverage.is_replaced(name):
            notes.append("lowering makes other ops of it")
        if name in CERTAIN:
            notes.append(CERTAIN[name])
        cells = (
            f"`{name.removeprefix('aten.')}`",
            " ".join(found.types),
            spans(found.ranks),
            found.dynamic,
            accuracy.of(name).name,
            op_coverage.test_of(name),
            "; ".join(notes),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def spans(ranks: list[int]) -> str:
    """0, 1, 2, 4 as 0-2 4."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return " ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def op_section() -> list[str]:
    lines = [
        "## ATen ops",
        "",
        "Types and ranks are those of the main operand: of all that torch computes,"
        " those that the op function plans. Integers of 64 bits are held in 32;"
        " values that do not fit are an error. float64 stays on the CPU. Dynamic:"
        " whether the main operand's sizes may be, each in turn, or which dimensions"
        " may not; `-` if torch itself makes them static. Accuracy: the limit above"
        " by which the test, in `test/ops`, judges the op. Notes: what is refused and"
        " why; such calls stay on the CPU, and the partitioner's report says so. And"
        " what is certain here where torch leaves it open.",
        "",
    ]
    return lines + lines_of(listed(aten=True))


def other_section() -> list[str]:
    lines = [
        "## Other namespaces",
        "",
        "As ExecuTorch's own tools and transformers produce them.",
        "",
    ]
    return lines + lines_of(listed(aten=False))


def table() -> str:
    """The whole document."""
    # Torch logs every call that it refuses.
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    head = [
        "# Ops",
        "",
        "Written by `scripts/op_table.py` from what the op functions say; a test"
        " keeps it true.",
        "",
    ]
    sections = (accuracy_section, core_section, op_section, other_section)
    texts = [head, *(["", *section()] for section in sections)]
    texts[1] = texts[1][1:]
    return "\n".join(line for text in texts for line in text) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = table()
    if options.check:
        return int(not PATH.exists() or PATH.read_text(encoding="utf-8") != text)
    PATH.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
