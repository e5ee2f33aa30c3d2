"""FX graph to ir.Graph, for a whole delegate or for one node.

Every tensor gets its shape as numbers or expressions over the program's shape
symbols, and its upper bound. Symbolic integers need no calls: an argument that
is one becomes its expression.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils._sympy.functions import (
    CeilToInt,
    CleanDiv,
    FloatTrueDiv,
    FloorDiv,
    FloorToInt,
    IntTrueDiv,
    Mod,
    PythonMod,
    ToFloat,
    TruncToInt,
)
from torch.utils._sympy.functions import Max as SymMax
from torch.utils._sympy.functions import Min as SymMin
from torch.utils._sympy.numbers import IntInfinity
from torch.utils._sympy.value_ranges import bound_sympy

from .. import ir
from ..errors import Unsupported
from ..ir import symbols
from ..ir.dtypes import DType
from . import verifier_ops
from .constants import Constants
from .debug_handles import DebugHandles
from .torch_dtypes import dtype_of, from_torch

_FUNCTIONALIZED = torch.ops.higher_order.auto_functionalized_v2
# These choose scales, which torch holds in float64 and kernels in float32.
CHOICES = (
    "quantized_decomposed.choose_qparams.tensor",
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
)
# Beyond this, an upper bound was not given but comes from torch's defaults.
_NO_BOUND = 1 << 31


def op_name(node: Node) -> str:
    """`aten.add.Tensor`: namespace, name and overload of what a node calls."""
    target = _callee(node)
    schema = getattr(target, "_schema", None)
    if schema is None:
        return getattr(target, "__name__", str(target))
    name = schema.name.replace(f"{verifier_ops.NAMESPACE}::", "aten.").replace(
        "::", "."
    )
    return f"{name}.{schema.overload_name or 'default'}"


def scale_choice(node: Node) -> Node | None:
    """The call that chose a scale, if the node is that scale; else None."""
    source = node.args[0] if node.target is operator.getitem else None
    if isinstance(source, Node) and op_name(source) in CHOICES and node.args[1] == 0:
        return source
    return None


def _callee(node: Node) -> Any:
    """What a node calls, inside export's wrapper for ops that change arguments."""
    return node.args[0] if node.target is _FUNCTIONALIZED else node.target


def is_symbolic_int(node: Node) -> bool:
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymBool, int, bool))


class Builder:
    """Adds FX nodes to an ir.Graph, one after another.

    Without `has_data`, constants are known by name only, which is enough for planning.
    """

    def __init__(self, program: ExportedProgram, has_data: bool) -> None:
        self.program = program
        self.graph = ir.Graph()
        self.constants = Constants(self.graph)
        self.has_data = has_data
        self.values: dict[Node, int | list[int]] = {}
        self.handles = DebugHandles()

    # -- values --------------------------------------------------------------------

    def dim(self, size: int | torch.SymInt) -> tuple[ir.Dim, int]:
        """An extent and its upper bound; declares the symbols it uses."""
        if isinstance(size, int):
            return size, size
        expression = size.node.expr
        if expression.is_Integer:
            return int(expression), int(expression)
        shape_env = size.node.shape_env
        for symbol in expression.free_symbols:
            self._declare(symbol, shape_env)
        text = expression_text(expression)
        if not expression.is_polynomial():
            # Interval bounds are too wide if a symbol occurs twice: n // (n // 8).
            exact = symbols.largest(text, self.graph.symbols)
            if exact is not None:
                return text, exact
        span = bound_sympy(expression, shape_env.var_to_range)
        if not _finite(span.upper):
            raise Unsupported(
                f"a dynamic size must have an upper bound, got {expression};"
                " give torch.export.Dim a max, or torch._check a size that is data"
            )
        return text, int(span.upper)

    def _declare(self, symbol: sympy.Symbol, shape_env: Any) -> None:
        span = shape_env.var_to_range[symbol]
        low = int(span.lower) if _finite(span.lower) else 0
        # A position in a cache is data: it has no bound and needs none.
        high = int(span.upper) if _finite(span.upper) else _NO_BOUND - 1
        self.graph.symbols[str(symbol)] = (max(low, 0) if high else low, high)

    def tensor(self, name: str, fake: torch.Tensor, boundary: bool = False) -> ir.Value:
        dims = [self.dim(size) for size in fake.shape]
        order: tuple[int, ...] = ()
        if boundary and fake.dim() > 1:
            order = tuple(fake.dim_order())
            order = () if order == tuple(range(fake.dim())) else order
        return ir.Value(
            name,
            dtype_of(fake),
            tuple(text for text, _ in dims),
            tuple(bound for _, bound in dims),
            order,
        )

    def add_input(self, node: Node) -> None:
        """A value that the delegate receives."""
        fake = node.meta["val"]
        if isinstance(fake, torch.Tensor):
            index = self.graph.add(self.tensor(node.name, fake, boundary=True))
            if scale_choice(node) is not None:
                self.graph.values[index].dtype = DType.FLOAT32
        elif isinstance(fake, (torch.SymInt, int)):
            index = self.add_integer(node)
        else:
            raise Unsupported(
                f"an input must be a tensor or an integer, got {node.name}: {fake!r}"
            )
        self.values[node] = index
        self.graph.inputs.append(index)

    def add_integer(self, node: Node) -> int:
        """An integer that comes in, or a size that goes out."""
        text = self.integer(node.meta["val"])
        value = ir.Value(node.name, DType.INT64, (), (), is_int=True, symbol=text)
        return self.graph.add(value)

    def add_constant(self, node: Node, tensor: torch.Tensor, state: str = "") -> None:
        value = self.tensor(node.name, tensor)
        value.state = state
        if not self.has_data:
            value.data_key = node.name
        elif not (state and not bool(tensor.any())):
            value.data_key = self.constants.key(tensor)
        self.values[node] = self.graph.add(value)

    def integer(self, value: Any) -> str:
        if isinstance(value, int):
            return str(value)
        expression = value.node.expr
        for symbol in expression.free_symbols:
            self._declare(symbol, value.node.shape_env)
        return expression_text(expression)

    # -- calls ---------------------------------------------------------------------

    def add_call(self, node: Node) -> None:
        if node.target is operator.getitem:
            source, position = node.args
            assert isinstance(source, Node)
            assert isinstance(position, int)
            values = self.values[source]
            assert isinstance(values, list)
            self.values[node] = values[position]
            self.handles.add_result(node, values[position])
            return
        if is_symbolic_int(node):
            return
        fakes = node.meta["val"]
        several = isinstance(fakes, (tuple, list))
        outputs = [
            self.graph.add(self.tensor(f"{node.name}_{i}" if several else node.name, f))
            for i, f in enumerate(fakes if several else [fakes])
            if isinstance(f, torch.Tensor)
        ]
        if op_name(node) in CHOICES:
            self.graph.values[outputs[0]].dtype = DType.FLOAT32
        args = [self.arg(arg) for arg in ordered_arguments(node)]
        self.graph.calls.append(ir.Call(op_name(node), args, outputs))
        self.values[node] = outputs if several else outputs[0]
        self.handles.add_call(node, outputs)

    def arg(self, arg: Any) -> ir.Arg:
        match arg:
            case None | bool() | int() | float() | str():
                return arg
            case Node():
                if arg not in self.values or is_symbolic_int(arg):
                    return self._symbolic(arg)
                value = self.values[arg]
                if isinstance(value, list):
                    return [ir.Ref(item) for item in value]
                return ir.Ref(value)
            case torch.dtype():
                return from_torch(arg)
            case torch.SymInt():
                return _expression(self.integer(arg))
            case list() | tuple():
                return [self.arg(item) for item in arg]
            case torch.memory_format() | torch.layout() | torch.device():
                # Layout is the boundary's business; the device is ours.
                return None
        raise Unsupported(f"an argument must be a tensor or a number, got {arg!r}")

    def _symbolic(self, node: Node) -> ir.Arg:
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool):
            return _expression(self.integer(value))
        raise Unsupported(f"an argument must be known when planning, got {node.name}")


def _expression(text: str) -> ir.Arg:
    return int(text) if text.lstrip("-").isdigit() else ir.Expr(text)


def ordered_arguments(node: Node) -> list[Any]:
    """A call's arguments in schema order, with defaults filled in."""
    schema = getattr(_callee(node), "_schema", None)
    if schema is None:
        return [*node.args, *node.kwargs.values()]
    if node.target is _FUNCTIONALIZED:
        return [_functional_argument(node, argument) for argument in schema.arguments]
    given = list(node.args)
    for argument in schema.arguments[len(given) :]:
        default = argument.default_value if argument.has_default_value() else None
        given.append(node.kwargs.get(argument.name, default))
    return given


def _functional_argument(node: Node, argument: Any) -> Any:
    """An argument of a wrapped call; one that it changes is the whole of a base."""
    name = argument.name
    if argument.alias_info is None or not argument.alias_info.is_write:
        default = argument.default_value if argument.has_default_value() else None
        return node.kwargs.get(name, default)
    known = {f"_{name}_base_index", "_all_bases"}
    views = [key for key in node.kwargs if key.startswith(f"_{name}_")]
    if not known.issuperset(views):
        raise Unsupported(f"a changed argument must be a whole tensor, got {views}")
    bases: Any = node.kwargs["_all_bases"]
    return bases[node.kwargs[f"_{name}_base_index"]]


def build(program: ExportedProgram) -> tuple[ir.Graph, Constants, DebugHandles]:
    """The graph of a delegate's program, the content of its constants, and which nodes
    its calls stand for."""
    builder = Builder(program, has_data=True)
    signature = program.graph_signature
    constants = _constants(program)
    mutated = set(signature.buffers_to_mutate.values())
    for node in program.graph.nodes:
        if node.op == "placeholder":
            if node.name in constants:
                target, tensor = constants[node.name]
                builder.add_constant(node, tensor, target if target in mutated else "")
            else:
                builder.add_input(node)
        elif node.op == "call_function":
            builder.add_call(node)
        elif node.op == "output":
            _outputs(builder, node, signature)
    builder.handles.start(builder.graph)
    return builder.graph, builder.constants, builder.handles


def _constants(program: ExportedProgram) -> dict[str, tuple[str, torch.Tensor]]:
    """What the program owns: placeholder name -> target and tensor."""
    signature = program.graph_signature
    found: dict[str, tuple[str, torch.Tensor]] = {}
    for names in (
        signature.inputs_to_parameters,
        signature.inputs_to_buffers,
        signature.inputs_to_lifted_tensor_constants,
    ):
        for placeholder, target in names.items():
            tensor = program.state_dict.get(target)
            if tensor is None:
                tensor = program.constants.get(target)
            if isinstance(tensor, torch.Tensor):
                found[placeholder] = (target, tensor)
    return found


def constant_tensors(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The tensors that the program owns, by placeholder."""
    return {name: tensor for name, (_, tensor) in _constants(program).items()}


def _outputs(builder: Builder, node: Node, signature: Any) -> None:
    states = {
        builder.graph.values[index].state: index
        for index in builder.values.values()
        if isinstance(index, int) and builder.graph.values[index].state
    }
    results: Any = node.args[0]
    for result, spec in zip(results, signature.output_specs):
        if result is None:
            continue
        if is_symbolic_int(result):
            builder.graph.outputs.append(builder.add_integer(result))
            continue
        index = builder.values[result]
        if not isinstance(index, int):
            raise Unsupported(f"an output must be one tensor, got {result.name}")
        target = signature.buffers_to_mutate.get(getattr(spec.arg, "name", ""))
        if target is not None:
            builder.graph.mutations[states[target]] = index
            continue
        fake = result.meta["val"]
        value = builder.graph.values[index]
        if isinstance(fake, torch.Tensor) and fake.dim() > 1:
            order = tuple(fake.dim_order())
            value.dim_order = () if order == tuple(range(fake.dim())) else order
        builder.graph.outputs.append(index)


def build_node(
    program: ExportedProgram, node: Node, constants: Iterable[str]
) -> ir.Graph:
    """A graph of just one node, to find out whether it can be planned."""
    builder = Builder(program, has_data=False)
    constants = set(constants)
    for source in node.all_input_nodes:
        fake = source.meta.get("val")
        if isinstance(fake, (list, tuple)):
            outputs = [
                builder.tensor(f"{source.name}_{i}", f) for i, f in enumerate(fake)
            ]
            indices = [builder.graph.add(value) for value in outputs]
            builder.graph.inputs += indices
            builder.values[source] = indices
        elif source.name in constants and isinstance(fake, torch.Tensor):
            builder.add_constant(source, fake)
        else:
            builder.add_input(source)
    builder.add_call(node)
    made = builder.values.get(node)
    if isinstance(made, list):
        # A result that nothing reads need not be computed.
        read = {user.args[1] for user in node.users if user.users}
        builder.graph.outputs = [made[i] for i in range(len(made)) if i in read]
    elif made is not None:
        builder.graph.outputs = [made]
    return builder.graph


# -- sympy to text -------------------------------------------------------------------


_ROUNDING = {TruncToInt: "trunc", FloorToInt: "floor", CeilToInt: "ceil"}


def expression_text(expression: sympy.Expr) -> str:
    """A sympy expression as `symbols.py` reads it."""
    text = expression_text
    match expression:
        case sympy.Symbol():
            return str(expression)
        case sympy.Integer():
            return str(int(expression))
        case sympy.Add():
            return f"({' + '.join(map(text, expression.args))})"
        case sympy.Mul():
            return _product(expression.args)
        case FloorDiv() | CleanDiv():
            return f"({text(expression.args[0])} // {text(expression.args[1])})"
        case Mod() | PythonMod():
            return f"({text(expression.args[0])} % {text(expression.args[1])})"
        case SymMax() | sympy.Max():
            return f"max({', '.join(map(text, expression.args))})"
        case SymMin() | sympy.Min():
            return f"min({', '.join(map(text, expression.args))})"
        case sympy.Pow() if expression.exp.is_Integer and expression.exp > 0:
            return f"({text(expression.base)} ** {int(expression.exp)})"
        case CeilToInt() if not expression.atoms(sympy.Float, ToFloat):
            return _ceiling(expression.args[0])
        case TruncToInt() | FloorToInt() | CeilToInt():
            return f"{_ROUNDING[type(expression)]}({text(expression.args[0])})"
        case ToFloat():
            return text(expression.args[0])
        case sympy.Float():
            return repr(float(expression))
        case IntTrueDiv() | FloatTrueDiv():
            return f"({text(expression.args[0])} / {text(expression.args[1])})"
    raise Unsupported(f"a dynamic size must be integer arithmetic, got {expression}")


def _product(args: Sequence[sympy.Expr]) -> str:
    """Factors, with rational ones as one exact division at the end."""
    top, bottom = [], []
    for arg in args:
        if isinstance(arg, sympy.Rational) and not arg.is_Integer:
            top.append(str(arg.p))
            bottom.append(str(arg.q))
        else:
            top.append(expression_text(arg))
    text = " * ".join(top)
    return f"({text})" if not bottom else f"(({text}) // {' // '.join(bottom)})"


def _ceiling(inner: sympy.Expr) -> str:
    top, bottom = inner.as_numer_denom()
    return f"(-((-{expression_text(top)}) // {expression_text(bottom)}))"


def _finite(bound: Any) -> bool:
    return not (
        bound in (sympy.oo, -sympy.oo, math.inf)
        or isinstance(bound, IntInfinity)
        or abs(bound) >= _NO_BOUND
    )
