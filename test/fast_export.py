"""Makes exporting many small programs in one process cheaper; changes no result.

Most of the time of a small program's export goes into what does not depend on the
program: finding torch's composite ops again, giving each of them twenty kernels for as
long as the export lasts, and looking for garbage among all that was imported. Of a
large one's, a fifth goes into computing the types of all results again and again, and a
tenth into copies of where its nodes came from.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from executorch.exir.verification.arg_validator import EdgeOpArgValidator
from torch._C import DispatchKey
from torch._export import utils
from torch._ops import OperatorBase
from torch._subclasses import fake_impls
from torch.export import decomp_utils, exported_program
from torch.fx import GraphModule, Interpreter
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
    """Interpreter.call_function; what checks the types of a graph, which it does ten
    times for every program, takes the results that its nodes have."""
    if isinstance(interpreter, EdgeOpArgValidator) and "val" in interpreter.node.meta:
        return interpreter.node.meta["val"]
    return _call_any_function(interpreter, target, args, kwargs)


_call_any_function = Interpreter.call_function


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
