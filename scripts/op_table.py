"""Writes docs/ops.md: every op, the types for which it plans, and core ATen's share.

    python scripts/op_table.py [--check]

Each ATen op is called on fake tensors of every type. Where torch accepts them,
the op function plans the call as it would at export; the table shows the answer,
so it cannot say more than the code does. With --check nothing is written, and
the exit status tells whether the file is up to date.
"""

from __future__ import annotations

import argparse
import functools
import logging
import operator
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, Node

from executorch_webgpu import registry
from executorch_webgpu.builder import build_node
from executorch_webgpu.device import AOT_CAPS
from executorch_webgpu.errors import Unsupported
from executorch_webgpu.planner import Planner

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

Args = tuple[Any, ...]
Make = Callable[..., torch.Tensor]

_IMAGE, _VOLUME = (1, 2, 8, 8), (1, 2, 6, 6, 6)


def _ints(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


def _bools(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.bool)


def _conv(t: Make) -> Args:
    return (
        t(1, 4, 8, 8),
        t(6, 4, 3, 3),
        t(6),
        [1, 1],
        [1, 1],
        [1, 1],
        False,
        [0, 0],
        1,
    )


# Arguments for ops that do not take what `_argument` makes of their schema.
SAMPLES: dict[str, Callable[[Make], Args]] = {
    "_adaptive_avg_pool2d": lambda t: (t(*_IMAGE), [3, 3]),
    "_adaptive_avg_pool3d": lambda t: (t(*_VOLUME), [3, 3, 3]),
    "_cdist_forward": lambda t: (t(3, 4), t(5, 4), 2.0, None),
    "_embedding_bag": lambda t: (t(5, 4), _ints(6), _ints(2)),
    "_embedding_bag_forward_only": lambda t: (t(5, 4), _ints(6), _ints(2)),
    "_fused_rms_norm": lambda t: (t(3, 4), [4], t(4), 1e-5),
    "_native_batch_norm_legit.no_stats": lambda t: (
        *(t(*_IMAGE), t(2), t(2)),
        *(True, 0.1, 1e-5),
    ),
    "_native_batch_norm_legit_no_training": lambda t: (
        *(t(*_IMAGE), t(2), t(2), t(2), t(2)),
        *(0.1, 1e-5),
    ),
    "_pdist_forward": lambda t: (t(4, 3), 2.0),
    "_unsafe_view": lambda t: (t(3, 4), [4, 3]),
    "adaptive_avg_pool1d": lambda t: (t(1, 2, 8), [3]),
    "adaptive_max_pool1d": lambda t: (t(1, 2, 8), [3]),
    "adaptive_max_pool2d": lambda t: (t(*_IMAGE), [3, 3]),
    "adaptive_max_pool3d": lambda t: (t(*_VOLUME), [3, 3, 3]),
    "addbmm": lambda t: (t(3, 5), t(2, 3, 4), t(2, 4, 5)),
    "addmm": lambda t: (t(3, 5), t(3, 4), t(4, 5)),
    "addmv": lambda t: (t(3), t(3, 4), t(4)),
    "as_strided_copy": lambda t: (t(3, 4), [2, 2], [4, 1]),
    "as_strided": lambda t: (t(3, 4), [2, 2], [4, 1]),
    "avg_pool1d": lambda t: (t(1, 2, 8), [2]),
    "avg_pool2d": lambda t: (t(*_IMAGE), [2, 2]),
    "avg_pool3d": lambda t: (t(*_VOLUME), [2, 2, 2]),
    "baddbmm": lambda t: (t(2, 3, 5), t(2, 3, 4), t(2, 4, 5)),
    "batch_norm": lambda t: (
        *(t(*_IMAGE), t(2), t(2), t(2), t(2)),
        *(False, 0.1, 1e-5, False),
    ),
    "bmm": lambda t: (t(2, 3, 4), t(2, 4, 5)),
    "channel_shuffle": lambda t: (t(1, 4, 3, 3), 2),
    "chunk": lambda t: (t(4, 3), 2),
    "clamp": lambda t: (t(3, 4), 0, 1),
    "clamp.Tensor": lambda t: (t(3, 4), t(3, 4), t(3, 4)),
    "col2im": lambda t: (t(1, 8, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]),
    "constant_pad_nd": lambda t: (t(3, 4), [1, 1]),
    "convolution": _conv,
    "cumprod": lambda t: (t(3, 4), 1),
    "diagonal": lambda t: (t(3, 4),),
    "diagonal_copy": lambda t: (t(3, 4),),
    "diagonal_scatter": lambda t: (t(3, 4), t(3)),
    "as_strided_scatter": lambda t: (t(3, 4), t(2, 2), [2, 2], [4, 1]),
    "dot": lambda t: (t(4), t(4)),
    "embedding": lambda t: (t(5, 4), _ints(3)),
    "empty_permuted": lambda t: ([3, 4], [0, 1]),
    "empty_strided": lambda t: ([3, 4], [4, 1]),
    "expand": lambda t: (t(3, 1), [3, 4]),
    "expand_copy": lambda t: (t(3, 1), [3, 4]),
    "fill.Tensor": lambda t: (t(3, 4), t()),
    "gather": lambda t: (t(3, 4), 1, _ints(3, 2)),
    "grid_sampler": lambda t: (t(*_IMAGE), t(1, 3, 3, 2), 0, 0, False),
    "grid_sampler_2d": lambda t: (t(*_IMAGE), t(1, 3, 3, 2), 0, 0, False),
    "grid_sampler_3d": lambda t: (t(*_VOLUME), t(1, 3, 3, 3, 3), 0, 0, False),
    "group_norm": lambda t: (t(*_IMAGE), 2, t(2), t(2)),
    "im2col": lambda t: (t(1, 2, 4, 4), [2, 2], [1, 1], [0, 0], [1, 1]),
    "index": lambda t: (t(3, 4), [_ints(2)]),
    "index_add": lambda t: (t(3, 4), 0, _ints(2), t(2, 4)),
    "index_copy": lambda t: (t(3, 4), 0, _ints(2), t(2, 4)),
    "index_fill": lambda t: (t(3, 4), 0, _ints(2), 1),
    "index_put": lambda t: (t(3, 4), [_ints(2)], t(2, 4)),
    "_unsafe_index_put": lambda t: (t(3, 4), [_ints(2)], t(2, 4)),
    "_unsafe_index": lambda t: (t(3, 4), [_ints(2)]),
    "index_select": lambda t: (t(3, 4), 1, _ints(2)),
    "instance_norm": lambda t: (
        *(t(*_IMAGE), t(2), t(2), None, None),
        *(True, 0.1, 1e-5, False),
    ),
    "layer_norm": lambda t: (t(3, 4), [4], t(4), t(4)),
    "lerp.Tensor": lambda t: (t(3, 4), t(3, 4), t(3, 4)),
    "linear": lambda t: (t(3, 4), t(5, 4), t(5)),
    "linspace": lambda t: (0.0, 1.0, 5),
    "masked_fill": lambda t: (t(3, 4), _bools(3, 4), 1),
    "masked_fill.Tensor": lambda t: (t(3, 4), _bools(3, 4), t()),
    "masked_scatter": lambda t: (t(3, 4), _bools(3, 4), t(12)),
    "matmul": lambda t: (t(3, 4), t(4, 5)),
    "max_pool2d_with_indices": lambda t: (t(*_IMAGE), [2, 2]),
    "max_pool3d_with_indices": lambda t: (t(*_VOLUME), [2, 2, 2]),
    "mm": lambda t: (t(3, 4), t(4, 5)),
    "mv": lambda t: (t(3, 4), t(4)),
    "narrow": lambda t: (t(3, 4), 1, 0, 2),
    "narrow_copy": lambda t: (t(3, 4), 1, 0, 2),
    "native_group_norm": lambda t: (t(*_IMAGE), t(2), t(2), 1, 2, 64, 2, 1e-5),
    "native_layer_norm": lambda t: (t(3, 4), [4], t(4), t(4), 1e-5),
    "permute": lambda t: (t(3, 4), [1, 0]),
    "permute_copy": lambda t: (t(3, 4), [1, 0]),
    "pixel_shuffle": lambda t: (t(1, 4, 3, 3), 2),
    "pixel_unshuffle": lambda t: (t(1, 1, 4, 4), 2),
    "_prelu_kernel": lambda t: (t(3, 4), t(1, 4)),
    "prelu": lambda t: (t(3, 4), t(4)),
    "pad": lambda t: (t(3, 4), [1, 1]),
    "reflection_pad1d": lambda t: (t(2, 3, 4), [1, 1]),
    "reflection_pad2d": lambda t: (t(*_IMAGE), [1, 1, 1, 1]),
    "reflection_pad3d": lambda t: (t(*_VOLUME), [1] * 6),
    "repeat": lambda t: (t(3, 4), [2, 1]),
    "replication_pad1d": lambda t: (t(2, 3, 4), [1, 1]),
    "replication_pad2d": lambda t: (t(*_IMAGE), [1, 1, 1, 1]),
    "replication_pad3d": lambda t: (t(*_VOLUME), [1] * 6),
    "reshape": lambda t: (t(3, 4), [4, 3]),
    "rms_norm": lambda t: (t(3, 4), [4], t(4), 1e-5),
    "scaled_dot_product_attention": lambda t: (t(1, 2, 3, 4),) * 3,
    "scatter.src": lambda t: (t(3, 4), 1, _ints(3, 2), t(3, 2)),
    "scatter.value": lambda t: (t(3, 4), 1, _ints(3, 2), 1),
    "scatter_add": lambda t: (t(3, 4), 1, _ints(3, 2), t(3, 2)),
    "scatter_reduce": lambda t: (t(3, 4), 1, _ints(3, 2), t(3, 2), "sum"),
    "select_scatter": lambda t: (t(3, 4), t(3), 1, 0),
    "slice_scatter": lambda t: (t(3, 4), t(3, 2), 1, 0, 2),
    "split": lambda t: (t(4, 3), 2),
    "split_copy": lambda t: (t(4, 3), 2),
    "split_with_sizes": lambda t: (t(4, 3), [1, 3]),
    "split_with_sizes_copy": lambda t: (t(4, 3), [1, 3]),
    "tile": lambda t: (t(3, 4), [2, 1]),
    "unfold": lambda t: (t(3, 4), 1, 2, 1),
    "unfold_copy": lambda t: (t(3, 4), 1, 2, 1),
    "view": lambda t: (t(3, 4), [4, 3]),
    "view_copy": lambda t: (t(3, 4), [4, 3]),
    "where": lambda t: (_bools(3, 4), t(3, 4), t(3, 4)),
}
_RESAMPLED = {"1": (1, 2, 8), "2": _IMAGE, "3": _VOLUME}


def overload_of(name: str) -> torch._ops.OpOverload | None:
    namespace, base, overload = name.split(".", 2)
    packet = getattr(getattr(torch.ops, namespace), base, None)
    return getattr(packet, overload, None)


def arguments(
    overload: torch._ops.OpOverload, make: Make
) -> tuple[Args, dict[str, Any]]:
    """A call that torch accepts, for most types."""
    base, variant = overload._schema.name.split("::")[1], overload._overloadname
    for key in (f"{base}.{variant}", base):
        if key in SAMPLES:
            return SAMPLES[key](make), {}
    if "upsample" in base:
        return _resampling(overload, base, make), {}
    given, named = [], {}
    for argument in overload._schema.arguments:
        if argument.has_default_value() and argument.name != "dtype":
            continue
        value = _argument(argument, make)
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            given.append(value)
    return tuple(given), named


def _resampling(overload: torch._ops.OpOverload, base: str, make: Make) -> Args:
    dims = next(d for d in "123" if f"{d}d" in base)
    x = make(*_RESAMPLED[dims])
    size = [2 * extent for extent in x.shape[2:]]
    names = [argument.name for argument in overload._schema.arguments]
    corners = (False,) if "align_corners" in names else ()
    if overload._overloadname == "vec":
        return (x, None, *corners, [2.0] * int(dims))
    return (x, size, *corners)


def _argument(argument: Any, make: Make) -> Any:
    kind, name = str(argument.type), argument.name
    if kind == "Tensor":
        return make(3, 4)
    if kind == "List[Tensor]":
        return [make(3, 4), make(3, 4)]
    if "Optional" in kind:
        return make(1, 1).dtype if name == "dtype" else None
    if kind in ("List[int]", "List[SymInt]"):
        return [3, 4] if name == "size" else [1]
    values = {"int": 1, "number": 1, "float": 0.5, "bool": False, "str": "none"}
    return values[kind]


def plan_reason(
    overload: torch._ops.OpOverload, args: Args, kwargs: dict[str, Any]
) -> str | None:
    """Empty if the call plans, else why not; None if torch itself refuses it."""
    try:
        result = overload(*args, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError):
        return None
    graph = Graph()
    node = graph.call_function(
        overload, _placeholders(graph, args), _placeholders(graph, kwargs)
    )
    node.meta["val"] = result
    several = isinstance(result, (list, tuple))
    graph.output(graph.call_function(operator.getitem, (node, 0)) if several else node)
    try:
        built = build_node(None, node, ())  # type: ignore[arg-type]
        Planner(built, AOT_CAPS).upper_bound()
    except Unsupported as error:
        return str(error).split(": ", 1)[-1].split(", got ")[0]
    return ""


def _placeholders(graph: Graph, value: Any) -> Any:
    """The arguments of a call with its tensors as inputs of a graph."""
    if isinstance(value, torch.Tensor):
        node: Node = graph.placeholder(f"x{len(graph.nodes)}")
        node.meta["val"] = value
        return node
    if isinstance(value, (list, tuple)):
        return type(value)(_placeholders(graph, item) for item in value)
    if isinstance(value, dict):
        return {key: _placeholders(graph, item) for key, item in value.items()}
    return value


@functools.cache
def support(name: str) -> tuple[list[str], dict[str, list[str]]]:
    """The types for which an op plans, and the others by the reason."""
    overload = overload_of(name)
    if overload is None:
        return [], {}
    types, refused = [], {}
    with FakeTensorMode():
        for label, dtype in TYPES.items():

            def make(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
                return torch.empty(shape, dtype=dtype)

            reason = plan_reason(overload, *arguments(overload, make))
            if reason == "":
                types.append(label)
            elif reason:
                refused.setdefault(reason, []).append(label)
    return types, refused


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
    return any(registry.find(item) is not None and support(item)[0] for item in names)


# Held by the tests named, which run on two drivers.
ACCURACY = (
    ("moves elements (views, cat, pad, gather, scatter, ...)", "the same bits",
     "test_shapes_and_values"),
    ("chooses elements (max, sort, topk, comparisons, ...)", "equal",
     "test_shapes_and_values"),
    ("arithmetic of integers", "equal, modulo 2^32", "test_properties"),
    ("one operation of IEEE (add, mul, floor, round, ...)", "equal",
     "test_properties"),
    ("elementary functions (exp, sin, pow, div, sqrt, ...)",
     "8 ulp of float32, 1 of float16 and bfloat16", "test_properties"),
    ("sums inside that may cancel (gelu, hardswish, lerp, ...)",
     "as before, of the largest operand", "test_properties"),
    ("sums and products (sum, mean, cumsum, mm, conv, ...)",
     "(terms + 2) * 2^-23 * the sum of the terms' magnitudes, then rounded once",
     "test_shapes_and_values"),
    ("norms, softmax, attention, resampling, pools",
     "1e-4 relative and 1e-5 absolute; 4e-3 and 2e-3 in float16, 2e-2 and 1e-2 in"
     " bfloat16", "the family's own test"),
)  # fmt: skip


def accuracy_section() -> list[str]:
    lines = [
        "## Accuracy, ranks, dynamic sizes",
        "",
        "Distances are from the result in float64. NaN and infinities"
        " are as in torch; numbers below the normal ones may be taken for zero, as"
        " WebGPU allows, except where elements only move. Tensors have up to 8"
        " dimensions, of any size, 0 included. Sizes may be dynamic: an op function"
        " plans every shape it meets, and refuses at export what it could not plan.",
        "",
        "| what an op does | how near | held by |",
        "|---|---|---|",
    ]
    return lines + [f"| {a} | {b} | {c} |" for a, b, c in ACCURACY]


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


def op_section() -> list[str]:
    # Some of the absent are known to the registry, to say why at export.
    reasons = {name for names in ABSENT.values() for name in names}
    lines = [
        "## ATen ops",
        "",
        "Types are those of the main operand. Integers of 64 bits are held in 32;"
        " values that do not fit are an error. float64 stays on the CPU.",
        "",
        "| op | types | refused |",
        "|---|---|---|",
    ]
    for name in sorted(registry.all_ops()):
        if not name.startswith("aten.") or name[5:] in reasons:
            continue
        types, refused = support(name)
        notes = "; ".join(
            f"{' '.join(labels)}: {reason}" for reason, labels in refused.items()
        )
        lines.append(f"| `{name[5:]}` | {' '.join(types)} | {notes} |")
    return lines


def other_section() -> list[str]:
    names = [
        name
        for name in sorted(registry.all_ops())
        if not name.startswith(("aten.", "webgpu."))
    ]
    lines = ["## Other namespaces", "", "As ExecuTorch's own tools produce them:", ""]
    return lines + [f"- `{name}`" for name in names]


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
    parts = [head, *(["", *section()] for section in sections)]
    parts[1] = parts[1][1:]
    return "\n".join(line for part in parts for line in part) + "\n"


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
