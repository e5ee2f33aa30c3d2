"""Elementwise programs: WGSL from a list of steps.

Enters: steps, each the formula of an elementwise op (`ops/elementwise/` has them), and
the tensors that they read, as strided views. Leaves: one WGSL function of the output's
row-major index, which is a kernel of its own, the epilogue of another kernel, or
inlined into its reader.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .. import ir
from ..errors import Unsupported, shown
from ..ir.dtypes import DType
from .tensor import Tensor, collapse
from .wgsl_text import Param, compute_type, reports_in, rounded, wrap


class Term(NamedTuple):
    """A WGSL expression and its kind: f (f32), i (i32) or b (bool)."""

    code: str
    kind: str
    dtype: DType | None = None  # of the tensor that it is an element of


Operand = Term | None | bool | int | float | str | DType | list[object]
Formula = Callable[["Emitter", Sequence[Operand], DType], Term]

FORMULAS: dict[str, Formula] = {}
# An op call that is a chain of formulas; its steps are the call's `post`.
PROGRAM = "webgpu.pointwise"


def is_formula(call: ir.Call) -> bool:
    """Whether a call is a single elementwise op, nothing fused into it."""
    return call.op in FORMULAS


def is_program(call: ir.Call) -> bool:
    """Whether a call is an elementwise program: a formula, or a chain of them."""
    return is_formula(call) or call.op == PROGRAM


def steps_of(graph: ir.Graph, call: ir.Call) -> list[ir.Step]:
    """The steps of a call: all of an elementwise program, or a kernel's epilogue."""
    if not is_formula(call):
        return call.post
    assert not call.post, "a formula with steps is an elementwise program"
    return [ir.Step(call.op, call.args, graph.values[call.outputs[0]].dtype)]


def kind_of(dtype: DType) -> str:
    """The kind of a `Term` of that type."""
    if dtype is DType.BOOL:
        return "b"
    return "f" if dtype.is_float else "i"


_CAST = {
    ("f", "i"): "i32({})",
    # By its bits: NaN is true, and not every driver finds it unequal to 0.
    ("f", "b"): "((bitcast<u32>({}) & 0x7fffffffu) != 0u)",
    ("i", "f"): "f32({})",
    ("i", "b"): "({} != 0)",
    ("b", "f"): "select(0.0, 1.0, {})",
    ("b", "i"): "select(0, 1, {})",
}


@dataclass
class Emitter:
    """Collects the statements and scalar parameters of one elementwise program."""

    prefix: str
    lines: list[str] = field(default_factory=list)
    params: dict[str, Param] = field(default_factory=dict)

    def let(self, term: Term) -> Term:
        """`term` computed once, under a name."""
        if re.fullmatch(r"\w+", term.code):
            return term
        name = f"t{len(self.lines)}"
        self.lines.append(f"let {name} = {term.code};")
        return term._replace(code=name)

    def term(self, operand: Operand) -> Term:
        """An operand as a term; a number becomes a parameter of the kernel."""
        if isinstance(operand, Term):
            return operand
        if isinstance(operand, bool):
            return Term("true" if operand else "false", "b")
        if not isinstance(operand, (int, float)) or isinstance(operand, DType):
            raise Unsupported(
                f"operand must be a tensor or a number, got {shown(operand)}"
            )
        kind = "i" if isinstance(operand, int) else "f"
        if kind == "i" and not -(2**31) <= operand < 2**31:
            raise Unsupported(f"an integer scalar must fit int32, got {operand}")
        name = f"{self.prefix}k{len(self.params)}"
        self.params[name] = operand
        return Term(f"p.{name}", kind)

    def cast(self, operand: Operand, kind: str, exact: bool = False) -> Term:
        """An operand converted to a kind; `exact` reports a float beyond int32."""
        if isinstance(operand, (int, float)) and kind == "f":
            operand = operand if isinstance(operand, DType) else float(operand)
        term = self.let(self.term(operand))
        if term.kind == kind:
            return term
        code = _CAST[term.kind, kind]
        if exact and (term.kind, kind) == ("f", "i"):
            code = "int_exact({})"
        return self.let(Term(code.format(term.code), kind))


def pointwise(*names: str) -> Callable[[Formula], Formula]:
    """Registers the formula of elementwise ops; a second one is an error."""

    def register(formula: Formula) -> Formula:
        for name in names:
            if name in FORMULAS:
                raise ValueError(f"{name} has a formula already")
            FORMULAS[name] = formula
        return formula

    return register


def promote(operands: Sequence[Operand]) -> str:
    """The kind in which torch would combine the operands."""
    kinds = set()
    for operand in operands:
        if isinstance(operand, Term):
            kinds.add(operand.kind)
        elif isinstance(operand, bool):
            kinds.add("b")
        elif isinstance(operand, (int, float)):
            kinds.add("i" if isinstance(operand, int) else "f")
    return "f" if "f" in kinds else "i" if "i" in kinds else "b"


def substitute(code: str, terms: dict[str, Term]) -> str:
    """`code` with each operand's letter replaced by its term."""
    if not terms:
        return code
    letters = "|".join(sorted(terms, key=len, reverse=True))
    return re.sub(rf"\b({letters})\b", lambda match: terms[match[1]].code, code)


def formula(
    float_code: str,
    int_code: str = "",
    bool_code: str = "",
    *,
    exact: str = "",
    gives: str = "",
    kind: str = "",
    by_result: bool = False,
) -> Formula:
    """A formula over the operands' letters a, b, c and d.

    `exact` is the code for int64, where a result that does not fit is reported.

    The operands are converted to one kind, the one they promote to unless there
    is no code for it, to `kind`, or with `by_result` to the result's, as torch's
    sums are. `gives` is the kind of the result if it is another.
    """
    codes = {"f": float_code, "i": int_code, "b": bool_code}
    letters = set(re.findall(r"\b[abcd]\b", " ".join((*codes.values(), exact))))

    def emit(e: Emitter, args: Sequence[Operand], dtype: DType) -> Term:
        if len(args) < len(letters):
            raise Unsupported(f"operands must be {len(letters)}, got {len(args)}")
        common = kind or (kind_of(dtype) if by_result else promote(args))
        if not codes[common] and common == "b":
            common = "i"
        if not codes[common]:
            common = "f"
        if not codes[common]:
            raise Unsupported("operands must be integers or bools, got floats")
        terms = {letter: e.cast(arg, common) for letter, arg in zip("abcd", args)}
        code = codes[common]
        if exact and common == "i" and dtype is DType.INT64:
            code = exact
        return Term(f"({substitute(code, terms)})", gives or common)

    return emit


@dataclass(frozen=True)
class Program:
    """An elementwise program as a WGSL function, what it reads, its parameters."""

    code: str
    inputs: dict[str, Tensor]
    params: dict[str, Param]
    # The bindings to read four elements at a time; None if only single elements
    # can be computed.
    vec4: frozenset[str] | None = None
    # Whether an index is divided into coordinates, for operands that are not
    # contiguous.
    divides: bool = False


def generate(
    name: str,
    steps: Sequence[ir.Step],
    operands: Mapping[int, Tensor],
    shape: Sequence[int],
    result: DType | None = None,
    four: bool = False,
    both: bool = False,
) -> Program:
    """`fn name(i[, r])` for the element at row-major index i of `shape`.

    `operands` are the tensors behind the steps' refs. With `result`, the function
    takes r, a value of that type, which the steps know as Local(-1), and another, u,
    if they know of Local(-2). With `four`, it is `fn name4(j)` for the four elements
    from 4j on, if the strides allow it; with `both`, `name` is there all the same.
    """
    prefix = f"{name}_"
    emitter = Emitter(prefix)
    reads = {
        key: _argument(f"v{number}", tensor.dtype)
        for number, (key, tensor) in enumerate(operands.items())
    }
    names = () if result is None else ("r", "u") if takes_two(steps) else ("r",)
    given = {} if result is None else _given(result)
    final, used = _emit_steps(emitter, steps, reads, given)
    value = emitter.cast(final, "f" if steps[-1].dtype.is_float else "i")
    kind = "f32" if value.kind == "f" else "i32"
    arguments = [
        f"v{number}: {compute_type(tensor.dtype)}"
        for number, (key, tensor) in enumerate(operands.items())
        if key in used
    ]
    extra = [f"{name}: {compute_type(result)}" for name in names if result is not None]
    body = "\n  ".join([*emitter.lines, f"return {value.code};"])
    element = (
        f"fn {prefix}of({', '.join(arguments + extra)}) -> {kind} {{\n  {body}\n}}"
    )
    access = _Access(prefix, {key: operands[key] for key in used}, shape, four)
    divides = bool(access.coordinates)
    if reports_in(body):
        access.only_inside(math.prod(shape))
    entries = [element]
    if access.four:
        entries.append(access.four_elements(name, kind))
    if both or not access.four:
        entries.append(access.one_element(name, kind, names, extra))
    return Program(
        "\n".join(entries),
        access.inputs,
        {**access.params, **emitter.params},
        frozenset(access.vec4) if access.four else None,
        divides,
    )


class _Access:
    """How an elementwise program finds its operands' elements from an output index."""

    def __init__(
        self,
        prefix: str,
        operands: Mapping[int, Tensor],
        shape: Sequence[int],
        four: bool,
    ) -> None:
        self.prefix = prefix
        plain = tuple(shape)
        views = {key: tensor.expand(plain) for key, tensor in operands.items()}
        walked = [
            key for key, v in views.items() if not v.is_contiguous or v.shape != plain
        ]
        layout = collapse(plain, [views[key].strides for key in walked])
        self.coordinates = _coordinates(prefix, layout.shape, layout.strides)
        self.params: dict[str, Param] = {}
        if self.coordinates:
            self.params[f"{prefix}shape"] = layout.shape
        # Four neighbours share all coordinates but the last.
        self.four = four and (not self.coordinates or layout.shape[-1] % 4 == 0)
        self.inputs = {f"{prefix}x{n}": t for n, t in enumerate(operands.values())}
        self.vec4: set[str] = set()
        self.index: dict[str, str] = {}
        self.stride: dict[str, int] = {}  # along the last dimension
        for binding, (key, view) in zip(self.inputs, views.items()):
            self.stride[binding] = 1
            if key not in walked:
                self.index[binding] = "i"
                self.vec4.add(binding)
                continue
            strides = layout.strides[walked.index(key)]
            self.params[f"{binding}_s"] = (view.offset, *strides)
            self.index[binding] = _index(binding, strides)
            self.stride[binding] = strides[-1]
            aligned = not any(n % 4 for n in (view.offset, *strides[:-1]))
            if strides[-1] == 1 and aligned:
                self.vec4.add(binding)

    def only_inside(self, numel: int) -> None:
        """Gives 0 behind the last element, where kernels that store four at a time
        reach, and where there is nothing to report."""
        self.four = False
        self.params[f"{self.prefix}n"] = numel
        guard = f"if (i >= p.{self.prefix}n) {{ return 0; }}"
        self.coordinates = [guard, *self.coordinates]

    def one_element(
        self, name: str, kind: str, given: Sequence[str], extra: Sequence[str]
    ) -> str:
        values = [f"get_{binding}({at})" for binding, at in self.index.items()]
        values += given
        lines = [*self.coordinates, f"return {name}_of({', '.join(values)});"]
        arguments = ", ".join(["i: i32", *extra])
        return f"fn {name}({arguments}) -> {kind} {{\n  " + "\n  ".join(lines) + "\n}"

    def four_elements(self, name: str, kind: str) -> str:
        lines = ["let i = j * 4;", *self.coordinates]
        arguments: list[list[str]] = [[], [], [], []]
        for number, (binding, at) in enumerate(self.index.items()):
            local = f"w{number}"
            if binding in self.vec4:
                lines.append(f"let {local} = get_{binding}4(({at}) >> 2u);")
            elif self.stride[binding] == 0:
                lines.append(f"let {local} = get_{binding}({at});")
            else:
                lines.append(f"let {local} = {at};")
            for k in range(4):
                if binding in self.vec4:
                    arguments[k].append(f"{local}[{k}]")
                elif self.stride[binding] == 0:
                    arguments[k].append(local)
                else:
                    last = len(self.params[f"{binding}_s"]) - 1  # type: ignore[arg-type]
                    stride = f"p.{binding}_s[{last // 4}][{last % 4}]"
                    arguments[k].append(f"get_{binding}({local} + {k} * {stride})")
        calls = ", ".join(f"{name}_of({', '.join(each)})" for each in arguments)
        lines.append(f"return vec4<{kind}>({calls});")
        return f"fn {name}4(j: i32) -> vec4<{kind}> {{\n  " + "\n  ".join(lines) + "\n}"


def _argument(name: str, dtype: DType) -> Term:
    kind = kind_of(dtype)
    return Term(f"({name} != 0)" if kind == "b" else name, kind, dtype)


def _given(result: DType) -> dict[int, Term]:
    """The values that a kernel computed, rounded as if it had stored them."""
    terms = {}
    for local, name in ((-1, "r"), (-2, "u")):
        term = _argument(name, result)
        if term.kind == "f":
            term = Term(rounded(result, name), "f", result)
        terms[local] = term
    return terms


def takes_two(steps: Sequence[ir.Step]) -> bool:
    """Whether the steps follow a kernel that computes two values for each element."""
    return any(ir.Local(-2) in ir.leaves(step.args) for step in steps)


def _emit_steps(
    emitter: Emitter,
    steps: Sequence[ir.Step],
    reads: dict[int, Term],
    given: dict[int, Term],
) -> tuple[Term, list[int]]:
    """The last step's result, and the keys of the operands that were read."""
    done: list[Term] = []
    cache: dict[int, Term] = {}

    def resolve(arg: ir.Leaf) -> Operand:
        match arg:
            case ir.Ref(id=key):
                return reads[key]
            case ir.Local(step=step) if step < 0:
                if step not in cache:
                    cache[step] = emitter.let(given[step])
                return cache[step]
            case ir.Local(step=step):
                return done[step]
            case ir.Expr():
                raise AssertionError("expressions are evaluated before")
        return arg

    for number, step in enumerate(steps):
        args = ir.map_arg(step.args, resolve)
        term = FORMULAS[step.op](emitter, args, step.dtype)
        last = number == len(steps) - 1
        done.append(emitter.let(narrow(emitter, term, step.dtype, last)))
    text = "\n".join([*emitter.lines, done[-1].code])
    words = set(re.findall(r"\w+", text))
    used = [key for number, key in enumerate(reads) if f"v{number}" in words]
    return done[-1], used


def narrow(emitter: Emitter, term: Term, dtype: DType, last: bool) -> Term:
    """A step's result, rounded or wrapped to its type; that of the last step is only
    converted, and rounded as it is stored."""
    term = emitter.cast(term, kind_of(dtype), exact=dtype is DType.INT64)
    if not last:
        if dtype.is_float:
            term = Term(rounded(dtype, term.code), "f")
        elif dtype is not DType.BOOL:
            term = Term(wrap(dtype, term.code), "i")
    return term._replace(dtype=dtype)


def _coordinates(
    prefix: str, shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> list[str]:
    """Statements that split i into the coordinates that some operand needs."""
    needed = [
        dim for dim in range(len(shape)) if any(stride[dim] for stride in strides)
    ]
    if not needed:
        return []
    lines = []
    rest = "i"
    for dim in range(len(shape) - 1, min(needed) - 1, -1):
        if dim == 0:
            lines.append(f"let c0 = {rest};")
            break
        extent = f"p.{prefix}shape[{dim // 4}][{dim % 4}]"
        lines.append(f"let q{dim} = {rest} / {extent};")
        if dim in needed:
            lines.append(f"let c{dim} = {rest} - q{dim} * {extent};")
        rest = f"q{dim}"
    return lines


def _index(binding: str, strides: Sequence[int]) -> str:
    def item(position: int) -> str:
        return f"p.{binding}_s[{position // 4}][{position % 4}]"

    terms = [f"c{dim} * {item(dim + 1)}" for dim, s in enumerate(strides) if s]
    return " + ".join([item(0), *terms])
