"""Numbers, texts, expressions and arguments that programs get wrong."""

from __future__ import annotations

import inspect
from functools import cache
from random import Random

from executorch_webgpu import ir
from executorch_webgpu.ir.dtypes import DType
from executorch_webgpu.plan import registry

_DTYPES = tuple(DType)
_EDGES = (
    0, 1, 2, 255, 256, 65535, 65536, 2**24, 2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**32,
    2**53, 2**62, 2**63 - 1,
)  # fmt: skip
_FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-38, 3.5e38, 1e308, float("inf"),
    float("-inf"), float("nan"),
)  # fmt: skip
_TEXTS = (
    "", " ", "\0", "a\nb", "\x1b[31mred\x1b[0m", "\r\n\t", "%s%n%x", "{0}", "*/ fn x",
    "x;}\nfn main() {", "\ud7ff", "é", "²", "٣", "../../etc/passwd", "trunc", "floor",
    "none", "tanh", "nearest", "sum", "in0", "out0", "params", "status",
)  # fmt: skip
# Each has the place of a symbol's name as {s}.
_EXPRESSIONS = (
    "9**9**9", "9**9**9**9", "2**{s}**{s}", "{s}**99999", "{s} - {s}", "-{s}",
    "2 - {s}", "1000002 - {s}", "{s} // 0", "{s} // ({s} - {s})", "{s} % ({s} - 2)",
    "1 / {s}", "{s} * 0", "{s} * {s}", "{s} * 2147483647", "{s} + 9223372036854775807",
    "({s} * 3) // 2", "({s} + 1) // 2", "{s} // 2", "{s} % 2", "max({s}, 3)",
    "min({s}, 3)", "min()", "max({s})", "min(*{s})", "abs({s}, {s})",
    "trunc(1e308*{s})", "floor(1e999)", "ceil({s} / 0.0)", "trunc({s} * 0.5)",
    "{s} if {s} > 3 else -{s}",
    "{s} if {s} else 0", "1 if {s} == {s} else 9**9**9", "__import__('os')", "{s}.real",
    "{s}()", "lambda: {s}", "[{s} for x in y]", "{s}[0]", "not {s}", "~{s}", "+{s}",
    "{s} << 99", "{s} and 0", "f'{{{s}}}'", "'a' * {s}", "'a' * 999999999", "b''", "1j",
    "0x7fffffff", "1_000", "1e3", "1.5", "True", "None", "...", "nothing", "²", "٣",
    "--5", "-", " 3", "3 ", "3\n", "(3)", "({s})", "{s} ", "{s}; {s}", "", "(", "{s} +",
    "\0", "x" * 100_000, "1" * 5_000, "(" * 500 + "{s}" + ")" * 500,
    "-" * 3_000 + "{s}", "{s}" + " + {s}" * 2_000, "{s}" + "**{s}" * 40,
)  # fmt: skip


def integer(rng: Random) -> int:
    """Often small, seldom at the end of a type's range; within 64 bits."""
    if rng.random() < 0.6:
        return rng.randint(-3, 20)
    number = rng.choice(_EDGES) + rng.randint(-1, 1)
    return max(-(2**63), min(number if rng.random() < 0.7 else -number, 2**63 - 1))


def index(rng: Random, count: int) -> int:
    """An unsigned 32-bit number, more often below `count` than not."""
    if count and rng.random() < 0.8:
        return rng.randrange(count)
    return rng.choice((count, count + 1, 2**31 - 1, 2**31, 2**32 - 1))


def dtype(rng: Random) -> DType:
    return rng.choice(_DTYPES)


def text(rng: Random) -> str:
    if rng.random() < 0.1:
        return rng.choice("ab\n\x07") * rng.choice((100, 10_000, 1_000_000))
    return rng.choice(_TEXTS)


def expression(rng: Random, graph: ir.Graph) -> str:
    """A malicious expression, or an arithmetic one of a few symbols."""
    symbols = list(graph.symbols) or ["s0"]
    if rng.random() < 0.5:
        return rng.choice(_EXPRESSIONS).replace("{s}", rng.choice(symbols))
    return _arithmetic(rng, symbols, rng.randint(1, 3))


def _arithmetic(rng: Random, symbols: list[str], depth: int) -> str:
    if depth == 0:
        return rng.choice((*symbols, *symbols, str(rng.randint(0, 40))))
    left, right = (_arithmetic(rng, symbols, depth - 1) for _ in range(2))
    if rng.random() < 0.15:
        return f"{rng.choice(('min', 'max'))}({left}, {right})"
    if rng.random() < 0.1:
        return f"{rng.choice(('trunc', 'floor', 'ceil'))}({left} * {rng.random():.3f})"
    return f"({left} {rng.choice(('+', '-', '*', '//', '%', '**'))} {right})"


def extent(rng: Random, graph: ir.Graph) -> ir.Dim:
    return expression(rng, graph) if rng.random() < 0.4 else integer(rng)


def leaf(rng: Random, graph: ir.Graph) -> ir.Leaf:
    """An argument of any kind that is no list."""
    kind = rng.randrange(9)
    if kind == 0:
        return None
    if kind == 1:
        return rng.random() < 0.5
    if kind == 2:
        return rng.choice(_FLOATS)
    if kind == 3:
        return text(rng)
    if kind == 4:
        return dtype(rng)
    if kind == 5:
        return ir.Expr(expression(rng, graph))
    if kind == 6:
        return ir.Local(integer(rng))
    if kind == 7:
        return ir.Ref(index(rng, len(graph.values)))
    return integer(rng)


def argument(rng: Random, graph: ir.Graph, depth: int = 2) -> ir.Arg:
    if depth == 0 or rng.random() < 0.75:
        return leaf(rng, graph)
    return [argument(rng, graph, depth - 1) for _ in range(rng.randint(0, 5))]


@cache
def op_names() -> tuple[str, ...]:
    return tuple(sorted(registry.all_ops()))


@cache
def _annotations(op: str) -> tuple[str, ...]:
    """The types of an op's arguments, as its function declares them."""
    found = registry.find(op)
    assert found is not None
    names = inspect.signature(found.function).parameters.values()
    return tuple(str(n.annotation) for n in names if n.kind is n.POSITIONAL_OR_KEYWORD)


def arguments_for(rng: Random, graph: ir.Graph, op: str) -> list[ir.Arg]:
    """Arguments of the types that an op declares; the first type is the recorder's."""
    return [_typed(rng, graph, name) for name in _annotations(op)[1:]]


def _typed(rng: Random, graph: ir.Graph, annotation: str) -> ir.Arg:
    choice = rng.choice(annotation.split(" | "))
    if choice.startswith("list["):
        item = choice.removeprefix("list[").removesuffix("]")
        return [_typed(rng, graph, item) for _ in range(rng.randint(0, 4))]
    if choice == "Tensor":
        return ir.Ref(rng.randrange(len(graph.values)))
    if choice == "DataInt":
        return ir.Expr(expression(rng, graph))
    if choice == "bool":
        return rng.random() < 0.5
    if choice in ("int", "Numbers"):
        return integer(rng)
    if choice == "float":
        return rng.choice(_FLOATS)
    if choice == "DType":
        return dtype(rng)
    if choice == "str":
        return text(rng)
    return None if choice == "None" else argument(rng, graph)
