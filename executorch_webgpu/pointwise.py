"""Pointwise programs: WGSL from a list of elementwise steps.

An elementwise op is a formula over its operands (`ops/elementwise.py` has the
tables). A program is one formula or a fused chain of them; it becomes one WGSL
function of the output's index, used as a kernel of its own or applied by any
other kernel to a value it is about to store.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from . import ir
from .dtypes import DType
from .errors import Unsupported
from .kernels import Param, compute_type
from .tensor import Tensor, collapse


class Term(NamedTuple):
    """A WGSL expression and its kind: f (f32), i (i32) or b (bool)."""

    code: str
    kind: str


Operand = Term | None | bool | int | float | str | DType | list[object]
Formula = Callable[["Emitter", Sequence[Operand], DType], Term]

FORMULAS: dict[str, Formula] = {}


def kind_of(dtype: DType) -> str:
    if dtype is DType.BOOL:
        return "b"
    return "f" if dtype.is_float else "i"


_CAST = {
    ("f", "i"): "i32({})",
    ("f", "b"): "({} != 0.0)",
    ("i", "f"): "f32({})",
    ("i", "b"): "({} != 0)",
    ("b", "f"): "select(0.0, 1.0, {})",
    ("b", "i"): "select(0, 1, {})",
}


@dataclass
class Emitter:
    """Collects the statements and scalar parameters of one program."""

    prefix: str
    lines: list[str] = field(default_factory=list)
    params: dict[str, Param] = field(default_factory=dict)

    def let(self, term: Term) -> Term:
        """`term` computed once, under a name."""
        if re.fullmatch(r"\w+", term.code):
            return term
        name = f"t{len(self.lines)}"
        self.lines.append(f"let {name} = {term.code};")
        return Term(name, term.kind)

    def term(self, operand: Operand) -> Term:
        """An operand as a term; a number becomes a parameter of the kernel."""
        if isinstance(operand, Term):
            return operand
        if isinstance(operand, bool):
            return Term("true" if operand else "false", "b")
        if not isinstance(operand, (int, float)):
            raise Unsupported(f"operand must be a tensor or a number, got {operand!r}")
        kind = "i" if isinstance(operand, int) else "f"
        if kind == "i" and not -(2**31) <= operand < 2**31:
            raise Unsupported(f"an integer scalar must fit int32, got {operand}")
        name = f"{self.prefix}k{len(self.params)}"
        self.params[name] = operand
        return Term(f"p.{name}", kind)

    def cast(self, operand: Operand, kind: str) -> Term:
        if isinstance(operand, (bool, int, float)) and kind == "f":
            operand = float(operand)
        term = self.let(self.term(operand))
        if term.kind == kind:
            return term
        return self.let(Term(_CAST[term.kind, kind].format(term.code), kind))


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


@dataclass(frozen=True)
class Program:
    """A generated WGSL function with what it reads and its parameters."""

    code: str
    inputs: dict[str, Tensor]
    params: dict[str, Param]


def generate(
    name: str,
    steps: Sequence[ir.Step],
    operands: dict[int, Tensor],
    shape: Sequence[int],
    result: DType | None = None,
) -> Program:
    """`fn name(i[, r])` for the element at row-major index i of `shape`.

    `operands` are the tensors behind the steps' refs. With `result`, the function
    takes r, a value of that type, which the steps know as Local(-1).
    """
    prefix = f"{name}_"
    tensors = {key: tensor.expand(shape) for key, tensor in operands.items()}
    plain = tuple(shape)
    flat = {key for key, t in tensors.items() if t.is_contiguous and t.shape == plain}
    walked = [key for key in tensors if key not in flat]
    layout = collapse(plain, [tensors[key].strides for key in walked])
    emitter = Emitter(prefix)
    params: dict[str, Param] = {}
    inputs: dict[str, Tensor] = {}
    reads: dict[int, Term] = {}
    coordinates = _coordinates(prefix, layout.shape, layout.strides)
    if coordinates:
        params[f"{prefix}shape"] = layout.shape
    for number, key in enumerate(tensors):
        tensor, binding = tensors[key], f"{prefix}x{number}"
        if key in flat:
            index = "i"
        else:
            strides = layout.strides[walked.index(key)]
            params[f"{binding}_s"] = (tensor.offset, *strides)
            index = _index(binding, strides)
        inputs[binding] = operands[key]
        kind = kind_of(tensor.dtype)
        code = f"get_{binding}({index})"
        reads[key] = Term(f"({code} != 0)" if kind == "b" else code, kind)
    given = _given(result)
    final = _emit_steps(emitter, steps, reads, given)
    kind = "f" if steps[-1].dtype.is_float else "i"
    value = emitter.cast(final, kind)
    argument = f", r: {compute_type(result)}" if result is not None else ""
    body = "\n  ".join([*coordinates, *emitter.lines, f"return {value.code};"])
    returns = "f32" if kind == "f" else "i32"
    code = f"fn {name}(i: i32{argument}) -> {returns} {{\n  {body}\n}}"
    return Program(code, inputs, {**params, **emitter.params})


def _given(result: DType | None) -> Term | None:
    if result is None:
        return None
    return Term("(r != 0)", "b") if result is DType.BOOL else Term("r", kind_of(result))


def _emit_steps(
    emitter: Emitter,
    steps: Sequence[ir.Step],
    reads: dict[int, Term],
    given: Term | None,
) -> Term:
    done: list[Term] = []
    cache: dict[int, Term] = {}

    def resolve(arg: ir.Arg) -> Operand:
        match arg:
            case ir.Ref(id=key):
                if key not in cache:
                    cache[key] = emitter.let(reads[key])
                return cache[key]
            case ir.Local(step=-1):
                assert given is not None
                return given
            case ir.Local(step=step):
                return done[step]
            case ir.Expr():
                raise AssertionError("expressions are evaluated before")
            case list():
                return [resolve(item) for item in arg]
        return arg

    for step in steps:
        args = [resolve(arg) for arg in step.args]
        term = FORMULAS[step.op](emitter, args, step.dtype)
        done.append(emitter.let(narrow(emitter, term, step.dtype)))
    return done[-1]


def narrow(emitter: Emitter, term: Term, dtype: DType) -> Term:
    """A step's result with the values that its type has."""
    term = emitter.cast(term, kind_of(dtype))
    shift = {DType.INT8: 24, DType.INT16: 16}.get(dtype)
    if shift:
        return Term(f"({term.code} << {shift}u) >> {shift}u", "i")
    return Term(f"{term.code} & 255", "i") if dtype is DType.UINT8 else term


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
