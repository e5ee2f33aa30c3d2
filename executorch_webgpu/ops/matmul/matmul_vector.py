"""Products on GPUs whose cost is to load B, `matmul_vector`: few rows, packed weights.

Enters: a product, and a form. Leaves: its dispatch. A vector of B is loaded once for up
to 16 rows, several before the first is used, and the sums of all rows are in registers.
The invocations of a workgroup split k, so that there are enough of them for few
columns. vector_text.py has what depends on how the operands are loaded.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ...plan.caps import Caps
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.traced_int import power_of_two, ranked, rung
from ...plan.wgsl_text import Param
from .dequantize import codes_code
from .operand_loads import load_a
from .product import Product, batch_code, finish_code, quad_code, stride_params
from .vector_text import CodesB, FloatB, Vector, Work, unrolled

# Rows up to which floats are multiplied so; each 16 load B again.
FEW = 16
# Invocations of a SIMD that hide the latency of memory: six waves of 64.
_BUSY = 6 * 64
# Neighbouring invocations whose loads should be together: 64 bytes of floats.
_LINE = 4
# Forms that are offered to autotune, the default included.
_OFFERED = 3

VECTORS = {
    form.name: form
    for form in (
        Vector(64, 4),
        Vector(64, 8),
        Vector(64, 16),
        Vector(256, 16),
        Vector(256, 32),
        Vector(256, 64),
    )
}


def vectors_for(caps: Caps, product: Product) -> list[str]:
    """Names of the forms, the most likely first.

    Neighbouring invocations should load from one cache line: they take neighbouring
    columns, or neighbouring k. Of those forms, the ones with the fewest idle
    invocations, for want of columns or of k, and of equal ones those that split k the
    least.
    """
    batch, m, n = map(rung, (math.prod(product.batch), product.m, product.n))

    def cost(form: Vector) -> tuple[bool, int, int]:
        work = _work(product, form)
        groups = batch * math.prod(_grid(m, n, work).values())
        slices = max(rung(work.b.slices), 1)
        neighbours = form.units if work.b.across else form.shares
        # What there is of invocations, and of k, over what is used: in thousandths.
        running, enough = max(groups, 1) * form.workgroup, _BUSY * caps.simds
        held = form.shares * -(-slices // form.shares)
        idle = 1000 * held * max(running, enough) // (slices * running)
        return neighbours < _LINE, idle, form.shares

    return [form.name for form in ranked(VECTORS.values(), cost)[:_OFFERED]]


def _work(product: Product, form: Vector) -> Work:
    rows = power_of_two(rung(product.m), FEW)
    a = load_a(product.a)
    if product.codes is None:
        return Work(form, a, FloatB(product.b, rows))
    b = CodesB(product.codes, rows)
    return Work(form, replace(a, vec4=a.vec4 and b.fills_words), b)


def _grid(m: int, n: int, work: Work) -> dict[str, int]:
    return {"tiles_m": -(-m // work.rows), "tiles_n": -(-n // work.columns)}


def multiply_vector(g: Recorder, product: Product, out: Output, form: Vector) -> None:
    work = _work(product, form)
    grid = _grid(product.m, product.n, work)
    batches, more = batch_code(product)
    finish, inputs, extra = finish_code(product, out.dtype)
    code = [batches, finish, quad_code(product.gated, out.dtype)]
    params: dict[str, Param] = {**stride_params(product), **grid, **more, **extra}
    params["slices"] = work.b.slices
    vec4 = [name for name, x in (("a", work.a), ("b", work.b)) if x.vec4]
    if product.codes is not None:
        code.append(codes_code(product.codes.layout.bits, product.codes.offsets))
        inputs |= _scales(product)
        vec4 += ["s", "o"]
        params["columns"] = product.codes.layout.columns
    g.dispatch(
        "matmul_vector",
        {"a": product.a, "b": product.b, **inputs},
        {"y": out},
        params,
        workgroups=math.prod(product.batch) * math.prod(grid.values()),
        workgroup=form.workgroup,
        consts={
            "E": "f32",
            "ROWS": work.rows,
            "COLUMNS": work.columns,
            "SHARES": form.shares,
            "UNITS": form.units,
            "AHEAD": work.b.ahead,
            "HAS_REST": work.b.has_rest(work.a),
            "ACROSS": work.b.across,
            "OUTPUTS": work.outputs,
        },
        raw=["a", "b", "bias"],
        vec4=vec4,
        code="\n".join([*code, unrolled(work)]),
    )


def _scales(product: Product) -> dict[str, Tensor]:
    codes = product.codes
    assert codes is not None
    if codes.offsets is None:
        return {"s": codes.scales}
    return {"s": codes.scales, "o": codes.offsets}
