"""Which ops the tests must have, and which test has which.

`public_ops` are those that programs contain and kernels run. Elementwise ones are drawn
by test_properties; every other one is called by test_every_op, some also on shapes that
test_shapes_and_values draws.
"""

from __future__ import annotations

import torch

from executorch_webgpu.plan import registry
from executorch_webgpu.plan.pointwise import FORMULAS


def overload_of(name: str) -> torch._ops.OpOverload:
    namespace, base, overload = name.split(".", 2)
    found: torch._ops.OpOverload = getattr(
        getattr(getattr(torch.ops, namespace), base), overload
    )
    return found


# Registered to say at export why they stay on the CPU.
_REFUSED = ("aten.masked_select", "aten.native_dropout", "aten.nonzero.", "webgpu.")


def public_ops() -> list[str]:
    """The ops that programs contain and kernels run: not those that passes make."""
    return sorted(n for n in registry.all_ops() if not n.startswith(_REFUSED))


# Which lowering makes others of, before it asks a backend for kernels.
REPLACED = """
    _fused_rms_norm adaptive_avg_pool1d arange.default arange.start avg_pool1d baddbmm
    batch_norm chunk col2im dot empty.memory_format fill floor_divide hardshrink
    log_softmax.int mv narrow new_empty new_full new_ones new_zeros ones ones_like
    positive select_scatter softmax.int softshrink split split_with_sizes stack
    sum.default t_copy transpose_copy unbind upsample_bicubic2d.default
    upsample_bilinear2d.default var.dim zeros zeros_like
"""


def is_replaced(name: str) -> bool:
    _, base, overload = name.split(".", 2)
    return not {base, f"{base}.{overload}"}.isdisjoint(REPLACED.split())


def same_code(name: str) -> set[str]:
    """The ops that an op shares its code with: lowering knows some by another name."""
    formula = FORMULAS.get(name)
    function = registry.all_ops()[name].function
    return {
        other
        for other, op in registry.all_ops().items()
        if (formula is not None and FORMULAS.get(other) is formula)
        or op.function is function
    }


def drawn_ops() -> set[str]:
    """The elementwise ops: hypothesis draws their operands."""
    return {
        name
        for name in public_ops()
        if name in FORMULAS
        and not name.startswith("quantized_decomposed.")
        and any("Tensor" in str(a.type) for a in overload_of(name)._schema.arguments)
        and not is_undefined(name)
        and not is_replaced(name)
    }


def is_undefined(name: str) -> bool:
    """Whether torch leaves the result's elements to chance."""
    return "empty" in name.split(".")[1]


# Those that test_shapes_and_values draws shapes and values for, by its families.
SHAPED = {
    "choosing": """
        all.dim amax.default amin.default any.dim argmax.default argmin.default
        max.default max.dim median.dim min.dim sort.default topk.default
    """,
    "sums": """
        avg_pool2d.default cumsum.default linalg_vector_norm.default mean.dim
        sum.dim_IntList
    """,
    "products": """
        addmm.default bmm.default convolution.default linear.default matmul.default
    """,
    "movement": """
        cat.default constant_pad_nd.default embedding.default expand_copy.default
        flip.default gather.default index.Tensor index_put.default
        permute_copy.default repeat.default roll.default scatter.src select_copy.int
        slice_copy.Tensor tril.default triu.default unsqueeze_copy.default
        upsample_nearest1d.vec view_copy.default
    """,
}


def test_of(name: str) -> str:
    """The module of test/ops that executes an op and compares it."""
    if name in drawn_ops():
        return "test_properties"
    shaped = {f"aten.{part}" for text in SHAPED.values() for part in text.split()}
    return "test_shapes_and_values" if name in shaped else "test_every_op"


def listed() -> set[str]:
    """Every op that is named here."""
    return {*REPLACED.split(), *" ".join(SHAPED.values()).split()}
