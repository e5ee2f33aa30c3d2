"""Layer norm and RMS norm on GPUs, a row in the registers of a workgroup.

Enters: rows whose length is a multiple of four. Leaves: every element read and written
once, as a vec4; the mean is subtracted before squares are summed.
"""

from __future__ import annotations

from ...plan import pointwise
from ...plan.recorder import Output, Recorder, Tensor
from ...plan.wgsl_text import Param
from ..matmul.product import function
from .workgroup_reduction import SUM, across, forms

# The vec4s that an invocation keeps, at most, and how many it should have: each is a
# load in flight.
_MOST = 8
_WANTED = 4
_WORKGROUPS = (64, 128, 256)


def fits(count: int, out: Output) -> bool:
    """Whether rows of `count` elements can be normed so."""
    takes_two = out.epilogue is not None and pointwise.takes_two(out.epilogue.steps)
    return 0 < count <= 4 * _MOST * _WORKGROUPS[-1] and count % 4 == 0 and not takes_two


def norm_in_registers(
    g: Recorder,
    x: Tensor,
    count: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    out: Output,
    *,
    is_rms: bool = False,
) -> None:
    """Norms each `count` elements of `x`; weight and bias have as many."""
    rows = out.numel // count
    kernel = "rms" if is_rms else "norm"
    form = g.choose(kernel, (rows, count), forms(g.caps), x.dtype)
    enough = [size for size in _WORKGROUPS if count <= 4 * _WANTED * size]
    workgroup = enough[0] if enough else _WORKGROUPS[-1]
    inputs = {"x": x}
    value = "v"
    if weight is not None:
        inputs["weight"], value = weight, f"{value} * get_weight4(k)"
    if bias is not None:
        inputs["bias"], value = bias, f"{value} + get_bias4(k)"
    affine = function("affine(v: vec4<f32>, k: i32) -> vec4<f32>", [f"return {value};"])
    sums = across(form, [("row_sum", SUM), ("row_squares", SUM)])
    params: dict[str, Param] = {"count": count, "eps": eps}
    g.dispatch(
        "norm_registers",
        inputs,
        {"y": out},
        params,
        workgroups=rows,
        workgroup=workgroup,
        consts={"IS_RMS": is_rms},
        vec4=[*inputs, "y"],
        code="\n".join([affine, sums, _share_code(int(-(-count // (4 * workgroup))))]),
    )


def _share_code(vectors: int) -> str:
    """What an invocation does with its share of a row."""
    share = "share: ptr<function, Share>"
    places = [(f"(*share)[{i}]", f"id + {i} * WG") for i in range(vectors)]
    vec4 = "vec4<f32>()"
    total = " + ".join(one for one, _ in places)
    squares = " + ".join(f"{one} * {one}" for one, _ in places)
    return "\n".join(
        [
            f"alias Share = array<vec4<f32>, {vectors}>;",
            function(
                "load_share(base: i32, id: i32, quads: i32) -> Share",
                [
                    "var share: Share;",
                    *(
                        f"share[{i}] = select({vec4}, get_x4(base + min({at}, quads"
                        f" - 1)), {at} < quads);"
                        for i, (_, at) in enumerate(places)
                    ),
                    "return share;",
                ],
            ),
            function(
                f"sum_of({share}) -> f32",
                [f"let sum = {total};", "return sum.x + sum.y + sum.z + sum.w;"],
            ),
            function(
                f"centered({share}, mean: f32, id: i32, quads: i32) -> Share",
                [
                    "var moved: Share;",
                    *(
                        f"moved[{i}] = select({vec4}, {one} - mean, {at} < quads);"
                        for i, (one, at) in enumerate(places)
                    ),
                    "return moved;",
                ],
            ),
            function(
                f"squares_of({share}) -> f32",
                [f"let sum = {squares};", "return sum.x + sum.y + sum.z + sum.w;"],
            ),
            function(
                f"store_share({share}, scale: f32, base: i32, id: i32, quads: i32)",
                [
                    f"if ({at} < quads) {{"
                    f" put_y4(base + {at}, affine({one} * scale, {at})); }}"
                    for one, at in places
                ],
            ),
        ]
    )
