"""Makes exporting many small programs in one process cheaper; changes no result but
the numbers of symbols that stand for data (`u7` for `u14`), which passes count up.

Most of the time of a small program's export goes into what does not depend on the
program: finding torch's composite ops again, giving each of them twenty kernels for as
long as the export lasts, and looking for garbage among all that was imported. Of a
large one's, a fifth goes into computing the types of all results again and again, and a
tenth into copies of where its nodes came from. Of both, a tenth goes into running every
op again in every pass, also where the pass changes nothing.
"""

from __future__ import annotations

import functools
import gc
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from executorch.exir.pass_base import _ExportPassBase
from executorch.exir.verification.arg_validator import EdgeOpArgValidator
from torch._C import DispatchKey
from torch._export import utils
from torch._export.pass_base import _ExportPassBaseDeprecatedDoNotUse
from torch._ops import OperatorBase, OpOverload
from torch._subclasses import FakeTensor, fake_impls
from torch.export import decomp_utils, exported_program
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.graph import _PyTreeCodeGen
from torch.fx.traceback import NodeSource

_collect = utils._collect_all_valid_cia_ops


@functools.lru_cache(maxsize=1)
def _collect_for(registered: tuple[str, ...], namespaces: tuple[str, ...]) -> set[Any]:
    return _collect()


def _collect_once() -> set[Any]:
    """The composite ops, found again only after another op has been registered."""
    registered = torch._C._dispatch_get_registrations_for_dispatch_key(
        "CompositeImplicitAutograd"
    )
    return _collect_for(tuple(registered), tuple(torch.ops._dir))


def _py_impl(op: OperatorBase, key: Any) -> Callable[[Any], Any]:
    """OperatorBase.py_impl, which builds the type of its result at every call."""
    if not isinstance(key, DispatchKey) or key == DispatchKey.Python:
        return _py_impl_of_any(op, key)

    def register(kernel: Any) -> Any:
        if key in op.py_kernels:
            raise RuntimeError(f"{op.name()} must have no kernel for {key}, got one")
        op.py_kernels[key] = kernel
        op._dispatch_cache.clear()
        return kernel

    return register


_py_impl_of_any = OperatorBase.py_impl


class _Table(NamedTuple):
    """What an op has while torch keeps it from being decomposed, and had before."""

    before: dict[Any, Any]
    during: dict[Any, Any]
    had_rule: bool  # for fake tensors
    rule: Any


_tables: dict[Any, _Table] = {}


@contextmanager
def _override_decompositions(kernels: Mapping[Any, Any]) -> Iterator[None]:
    """exported_program._override_composite_implicit_decomp, which builds the same
    tables for some 600 ops twice in every export."""
    rules = fake_impls.op_implementations_dict
    for op, kernel in kernels.items():
        table = _tables.get(op)
        had_rule = op in rules
        if table is None or table.before != op.py_kernels or had_rule != table.had_rule:
            before = op.py_kernels.copy()
            with _override_now({op: kernel}):
                table = _Table(before, op.py_kernels.copy(), had_rule, rules.get(op))
            _tables[op] = table
        op.py_kernels.update(table.during)
        op.py_kernels[DispatchKey.CompositeImplicitAutograd] = kernel
        op._dispatch_cache.clear()
        if table.rule is not None:
            rules[op] = table.rule
    try:
        yield
    finally:
        for op in kernels:
            op.py_kernels.clear()
            op.py_kernels.update(_tables[op].before)
            op._dispatch_cache.clear()
            rules.pop(op, None)


_override_now = exported_program._override_composite_implicit_decomp


class _Forward:
    """The `forward` of a GraphModule's class until somebody looks at it.

    Passes give a module a new graph some eighty times, and only few of these graphs
    are ever called.
    """

    def __get__(self, module: GraphModule | None, cls: type[GraphModule]) -> Any:
        if module is None:
            return self
        _recompile_now(module)
        return module.forward


class _Code:
    """What `recompile` returns, generated when somebody looks at it."""

    def __init__(self, module: GraphModule) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(_recompile_now(self._module), name)


def _recompile(module: GraphModule) -> _Code:
    for name in _GENERATED:
        module.__dict__.pop(name, None)
    codegen = module._graph._codegen
    if isinstance(codegen, _PyTreeCodeGen):
        module._in_spec = codegen.pytree_info.in_spec
        module._out_spec = codegen.pytree_info.out_spec
    type(module).forward = _Forward()
    return _Code(module)


def _generated(module: GraphModule, name: str) -> Any:
    if name in _GENERATED:
        _recompile_now(module)
        return module.__dict__[name]
    return torch.nn.Module.__getattr__(module, name)


def _call_function(
    interpreter: Interpreter, target: Any, args: Any, kwargs: Any
) -> Any:
    """Interpreter.call_function, which takes the results that nodes have: for what
    checks the types of a graph, which it does ten times for every program, and for a
    pass, where it does not change the node."""
    if isinstance(interpreter, EdgeOpArgValidator) and "val" in interpreter.node.meta:
        return interpreter.node.meta["val"]
    node = interpreter.__dict__.get(_NODE)
    if node is None or "val" not in node.meta:
        return _call_any_function(interpreter, target, args, kwargs)
    known = node.meta["val"]
    is_same_op = isinstance(target, (OpOverload, EdgeOpOverload)) and (
        node.target in (target, getattr(target, "_op", None))
    )
    if is_same_op and _are_values(node.args, args) and _are_values(node.kwargs, kwargs):
        return known
    result = _call_any_function(interpreter, target, args, kwargs)
    # What follows finds its arguments as they were.
    return known if _is_like(result, known) else result


_call_any_function = Interpreter.call_function
# The attribute of a pass's interpreter that is the node which the pass is at.
_NODE = "_node_of_pass"


def _known_to(run_node: Callable[[Any, Node], Any]) -> Callable[[Any, Node], Any]:
    """ExportInterpreter.run_node, which tells the pass's interpreter of the node."""

    def run(interpreter: Any, node: Node) -> Any:
        setattr(interpreter.callback.interpreter, _NODE, node)
        return run_node(interpreter, node)

    return run


def _are_values(args: Any, given: Any) -> bool:
    """Whether what is given for a node's arguments is what they have been: the same
    objects, so that no size is compared, which could make it a constant."""
    if isinstance(args, Node):
        known = args.meta.get("val")
        if isinstance(known, (list, tuple)) and isinstance(given, (list, tuple)):
            return len(known) == len(given) and all(map(operator.is_, known, given))
        return known is not None and known is given
    if isinstance(args, (list, tuple)):
        is_row = isinstance(given, (list, tuple)) and len(args) == len(given)
        return is_row and all(map(_are_values, args, given))
    if isinstance(args, dict):
        is_alike = isinstance(given, dict) and args.keys() == given.keys()
        return is_alike and all(_are_values(args[key], given[key]) for key in args)
    return type(args) is type(given) and bool(args == given)


def _is_like(result: Any, known: Any) -> bool:
    """Whether two results of an op tell the same of it."""
    if isinstance(result, (list, tuple)):
        is_row = type(result) is type(known) and len(result) == len(known)
        return is_row and all(map(_is_like, result, known))
    if type(result) is not FakeTensor or type(known) is not FakeTensor:
        return False
    if result.constant is not None or known.constant is not None:
        return False
    return result.fake_mode is known.fake_mode and _told(result) == _told(known)


def _told(tensor: FakeTensor) -> tuple[Any, ...]:
    sizes = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    return (
        *(tensor.dtype, tensor.device, tensor.layout, tensor.requires_grad),
        len(tensor.shape),
        # Symbols by name: to compare sizes could make them constants.
        *(each if type(each) is int else str(each) for each in sizes),
    )


def _reduce(module: GraphModule) -> Any:
    """For pickle, which reads what `recompile` sets from the module's dictionary."""
    _recompile_now(module)
    return _reduce_compiled(module)


_recompile_now = GraphModule.recompile
_reduce_compiled = GraphModule.__reduce__
# Attributes that `recompile` sets, besides the specs.
_GENERATED = frozenset(("_code", "_lineno_map", "_prologue_start"))


def start() -> None:
    for module in (utils, decomp_utils, exported_program):
        module._collect_all_valid_cia_ops = _collect_once
    exported_program._override_composite_implicit_decomp = _override_decompositions
    OperatorBase.py_impl = _py_impl
    # The same kernel for every backend: it depends on the op and the flag alone.
    exported_program.autograd_not_implemented = functools.cache(
        exported_program.autograd_not_implemented
    )
    Interpreter.call_function = _call_function
    for passes in (_ExportPassBase, _ExportPassBaseDeprecatedDoNotUse):
        interpreter = passes.ExportInterpreter
        interpreter.run_node = _known_to(interpreter.run_node)
    GraphModule.recompile = _recompile
    GraphModule.__reduce__ = _reduce
    GraphModule.__getattr__ = _generated
    # Each tells of a node that was: it never changes, so a copy may be the same one.
    NodeSource.__deepcopy__ = lambda source, memo: source


def imported() -> None:
    """To be called when everything has been imported: all of that is here to stay."""
    gc.collect()
    gc.freeze()
    # An export makes some 100,000 objects, most of which die without being looked for.
    gc.set_threshold(50_000, 20, 20)
