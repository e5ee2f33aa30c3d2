"""A matrix product as all its kernels see it: operands, and what is done to the sums.

Enters: views with equal batch dimensions. Leaves: WGSL for where the matrices of a
batch start (`a_matrix`, `b_matrix`), for factors and bias (`finish`), for where a
row of the result goes (`y_at`) and for storing four sums (`put_quad`), with the
parameters that these read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.dtypes import DType
from ...plan import pointwise
from ...plan.packed_weights import Layout
from ...plan.recorder import Output, Tensor
from ...plan.tensor import collapse
from ...plan.wgsl_text import Param


@dataclass(frozen=True)
class Codes:
    """How b's words (plan/packed_weights.py) are dequantized: code * scale + offset."""

    layout: Layout
    scales: Tensor
    offsets: Tensor | None  # None: -8 * scale for 4-bit codes, which are stored plus 8


@dataclass
class Product:
    """a[batch, m, k] x b[batch, k, n], scaled, plus bias[m, n], scaled."""

    a: Tensor
    b: Tensor
    bias: Tensor | None = None
    alpha: float = 1.0
    beta: float = 1.0
    row_scale: Tensor | None = None  # [batch * m] factors of the rows of the result
    first_row: int = 0  # where the result's rows go among `rows` of the output
    rows: int = 0  # 0: as many as a has
    # Matrices of the batch that share the output's rows: element (head, row, column)
    # of `heads` matrices goes to [row, head, column].
    heads: int = 1
    codes: Codes | None = None  # b is words, and there is no batch
    # Columns of the result if two columns of b give one: of four neighbours, the first
    # and the third, and the second and the fourth. 0: as many as b has.
    gated: int = 0
    # Where the groups of the batch end, if each has its own matrix of b, which is
    # [groups, k, n]; a batch index in no group gives zeros.
    groups: Tensor | None = None

    @property
    def m(self) -> int:
        return self.a.shape[-2]

    @property
    def k(self) -> int:
        return self.a.shape[-1]

    @property
    def n(self) -> int:
        return self.codes.layout.rows if self.codes else self.b.shape[-1]

    @property
    def batch(self) -> tuple[int, ...]:
        return self.a.shape[:-2]


def batch_code(product: Product) -> tuple[str, dict[str, Param]]:
    """a_matrix and b_matrix: where a batch's matrices start."""
    if product.groups is not None:
        return _group_code(product)
    a, b = product.a, product.b
    walked = [a.strides[:-2], b.strides[:-2]]
    layout = collapse(product.batch, walked)
    params: dict[str, Param] = {"a_offset": a.offset, "b_offset": b.offset}
    lines = {"a": "p.a_offset", "b": "p.b_offset"}
    code = []
    rank = len(layout.shape)
    if layout.shape != (1,):
        params["batch_shape"] = layout.shape
        params["a_batch"], params["b_batch"] = layout.strides
        for name in "ab":
            body = ["var rest = batch;", f"var at = {lines[name]};"]
            for dim in range(rank - 1, 0, -1):
                body += [
                    f"let next{dim} = rest / batch_shape_at({dim});",
                    f"at += (rest - next{dim} * batch_shape_at({dim}))"
                    f" * {name}_batch_at({dim});",
                    f"rest = next{dim};",
                ]
            body.append(f"return at + rest * {name}_batch_at(0);")
            code.append(function(f"{name}_matrix(batch: i32) -> i32", body))
    else:
        for name in "ab":
            body = [f"return {lines[name]};"]
            code.append(function(f"{name}_matrix(batch: i32) -> i32", body))
    return "\n".join(code), params


def _group_code(product: Product) -> tuple[str, dict[str, Param]]:
    """The same where b's matrix is found by a binary search of the groups' ends."""
    a, b = product.a, product.b
    params: dict[str, Param] = {
        "a_offset": a.offset,
        "b_offset": b.offset,
        "a_batch": a.strides[0],
        "b_group": b.strides[0],
        "groups": b.shape[0],
    }
    search = [
        "var low = 0;",
        "var high = p.groups - 1;",
        "while (low < high) {",
        "  let middle = (low + high) / 2;",
        "  if (get_ends(middle) > batch) { high = middle; } else { low = middle + 1; }",
        "}",
        "return p.b_offset + low * p.b_group;",
    ]
    code = [
        function(
            "a_matrix(batch: i32) -> i32", ["return p.a_offset + batch * p.a_batch;"]
        ),
        function("b_matrix(batch: i32) -> i32", search),
    ]
    return "\n".join(code), params


def stride_params(product: Product) -> dict[str, Param]:
    """The sizes of a batch's matrices, and their strides."""
    a, b = product.a, product.b
    return {
        "m": product.m,
        "n": product.n,
        "k": product.k,
        "a_row": a.strides[-2],
        "a_col": a.strides[-1],
        "b_row": b.strides[-2],
        "b_col": b.strides[-1],
    }


def function(signature: str, body: Sequence[str]) -> str:
    """A WGSL function of these statements."""
    return "\n  ".join([f"fn {signature} {{", *body]) + "\n}"


def finish_code(
    product: Product, dtype: DType
) -> tuple[str, dict[str, Tensor], dict[str, Param]]:
    """finish(batch, row, column, sum): the result after factors and bias, and
    y_at(batch, row): where a row of the output starts."""
    inputs: dict[str, Tensor] = {}
    params: dict[str, Param] = {}
    params["y_rows"] = product.rows or product.m
    params["y_first"] = product.first_row
    params["y_width"] = product.gated or product.n
    kind = "f32" if dtype.is_float else "i32"
    number = float if dtype.is_float else int
    value = "v"
    if product.row_scale is not None:
        inputs["factor"] = product.row_scale
        value = "v * get_factor(batch * p.m + row)"
    if product.alpha != 1:
        params["alpha"] = number(product.alpha)
        value = f"p.alpha * {value}"
    bias = product.bias
    if bias is not None and product.beta != 0:
        full = bias.expand((*product.batch, product.m, product.n))
        batch = collapse(full.shape[:-2], [full.strides[:-2]])
        inputs["bias"] = bias
        params["bias_at"] = (full.offset, full.strides[-2], full.strides[-1])
        where = "bias_at_at(0) + row * bias_at_at(1) + column * bias_at_at(2)"
        rest = "batch"
        if batch.shape != (1,) and any(batch.strides[0]):
            params["bias_shape"] = batch.shape
            params["bias_batch"] = batch.strides[0]
            for dim in range(len(batch.shape) - 1, -1, -1):
                extent, stride = f"bias_shape_at({dim})", f"bias_batch_at({dim})"
                inner = f"({rest}) % {extent}" if dim else f"({rest})"
                where += f" + ({inner}) * {stride}"
                rest = f"({rest}) / {extent}"
        term = f"get_bias({where})"
        if product.beta != 1:
            params["beta"] = number(product.beta)
            term = f"p.beta * {term}"
        value = f"{value} + {term}"
    if product.groups is not None:
        inputs["ends"] = product.groups
        params["last_group"] = product.groups.numel - 1
        value = f"select({kind}(0), {value}, batch < get_ends(p.last_group))"
    signature = f"finish(batch: i32, row: i32, column: i32, v: {kind}) -> {kind}"
    start = ["return (batch * p.y_rows + p.y_first + row) * p.y_width;"]
    if product.heads > 1:
        params["y_heads"] = product.heads
        start = [
            "let row_of_all = (batch / p.y_heads) * p.y_rows + p.y_first + row;",
            "return (row_of_all * p.y_heads + batch % p.y_heads) * p.y_width;",
        ]
    code = function("y_at(batch: i32, row: i32) -> i32", start)
    return f"{code}\n{function(signature, [f'return {value};'])}", inputs, params


def stores_quads(product: Product, out: Output) -> bool:
    """Whether four neighbouring columns are a vec4 of the output."""
    takes_two = out.epilogue is not None and pointwise.takes_two(out.epilogue.steps)
    return product.n % 4 == 0 and not product.gated and not takes_two


def quad_code(gated: int, dtype: DType, is_whole: bool = False) -> str:
    """put_quad: finishes the sums of four columns, and stores the results: four
    elements or, if `gated` (`Product.gated`), two. With `is_whole`, as a vec4."""
    kind = "f32" if dtype.is_float else "i32"
    signature = f"put_quad(batch: i32, row: i32, column: i32, v: vec4<{kind}>)"
    if is_whole:
        finished = ", ".join(
            f"finish(batch, row, column + {i}, v[{i}])" for i in range(4)
        )
        store = f"put_y4((y_at(batch, row) + column) >> 2u, vec4<{kind}>({finished}));"
        return function(signature, [f"if (column < p.y_width) {{ {store} }}"])
    body = []
    for i in range(2 if gated else 4):
        values = [f"column + {i}, v[{i}]"]
        column = f"column / 2 + {i}" if gated else f"column + {i}"
        if gated:
            values.append(f"column + {i + 2}, v[{i + 2}]")
        finished = ", ".join(f"finish(batch, row, {value})" for value in values)
        store = f"put_y(y_at(batch, row) + {column}, {finished});"
        body.append(f"if ({column} < p.y_width) {{ {store} }}")
    return function(signature, body)
