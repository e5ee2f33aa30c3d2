"""What the tests rely on: messages that tell what is wrong, and exports as torch's."""

from __future__ import annotations

import copy
import inspect
import operator
import pickle
import re
from collections.abc import Callable
from typing import Any

import fast_export
import pytest
import torch
from executorch.exir import to_edge
from executorch.exir.dialects._ops import ops as exir_ops
from executorch.exir.pass_base import ExportPass, ProxyValue
from harness import Function, check_op, compare
from torch._subclasses import fake_impls
from torch.export import exported_program


class Wrong(torch.nn.Module):
    """Right where it is exported, wrong by `error` at one element in eager."""

    def __init__(self, error: float, at: tuple[int, ...]) -> None:
        super().__init__()
        self.error, self.at = error, at

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.atan(x)
        if not torch.compiler.is_compiling():
            y[self.at] += self.error
        return x.exp(), y


class Late(torch.nn.Module):
    """Wrong in eager where its input is 0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y if torch.compiler.is_compiling() else torch.where(x == 0, 1.0, y)


def message(check: Callable[[], object]) -> str:
    with pytest.raises(AssertionError) as caught:
        check()
    return str(caught.value)


def test_op_inputs_element_and_values_are_told() -> None:
    x = torch.zeros(3, 5)
    said = message(lambda: check_op(Wrong(0.25, (2, 3)), x))
    assert said.startswith(
        "output 1 of aten.atan.default on float32 [3, 5]:"
        " element [2, 3] must be 0.25, got 0.0; 1 of 15 differ\n"
    ), said


def test_the_set_of_inputs_is_told() -> None:
    said = message(lambda: check_op(Late(), torch.ones(2), others=[(torch.zeros(2),)]))
    assert "on others[0] (float32 [2]): element [0] must be 1.0, got 0.0" in said


@pytest.mark.parametrize(
    ("result", "wanted", "said"),
    [
        # The one that is farthest, not the first.
        ([1.0, 2.5, 9.0], [1.0, 2.0, 3.0], "[2] must be 3.0, got 9.0; 2 of 3"),
        ([1.0, torch.nan], [2.0, 1.0], "[1] must be 1.0, got nan; 2 of 2"),
        ([torch.inf, 1.0], [torch.inf, 2.0], "[1] must be 2.0, got 1.0; 1 of 2"),
        ([True, False], [True, True], "[1] must be True, got False; 1 of 2"),
        ([2**62, 0], [2**62 + 1, 0], f"[0] must be {2**62 + 1}, got {2**62}; 1 of 2"),
        (3.0, 4.0, "[] must be 4.0, got 3.0; 1 of 1"),
    ],
)
def test_the_worst_element_is_told(result: object, wanted: object, said: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(f"output 0: element {said}")):
        compare([torch.tensor(result)], [torch.tensor(wanted)])


# Torch still lists the ops of a library that is gone, and does not find them.
_KEPT: list[torch.library.Library] = []


def test_a_composite_op_that_is_registered_late_is_found() -> None:
    found = exported_program._collect_all_valid_cia_ops()
    library = torch.library.Library("webgpu_late", "DEF")
    _KEPT.append(library)
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
    more = exported_program._collect_all_valid_cia_ops()
    assert more - found == {torch.ops.webgpu_late.twice.default}
    assert more == fast_export._collect()


def doubled() -> torch.fx.GraphModule:
    """A module whose graph was changed after it was made: 2x instead of x + 1."""
    module = torch.fx.symbolic_trace(lambda x: x + 1)
    (add,) = module.graph.find_nodes(op="call_function", target=operator.add)
    add.target, add.args = operator.mul, (add.args[0], 2)
    module.recompile()
    return module


@pytest.mark.parametrize(
    "used",
    [
        lambda module: module,
        lambda module: module.forward,
        copy.copy,
        copy.deepcopy,
        lambda module: pickle.loads(pickle.dumps(module)),
        lambda module: torch.nn.Sequential(module),
    ],
)
def test_a_changed_graph_is_what_runs(used: Callable[[object], Any]) -> None:
    assert used(doubled())(5) == 10


def test_a_changed_graph_is_what_is_shown() -> None:
    assert "x * 2" in doubled().code
    assert "x * 2" in str(doubled())
    assert "x * 2" in doubled().recompile().src
    assert list(inspect.signature(doubled().forward).parameters) == ["x"]


def test_a_kernel_is_registered_once() -> None:
    library = torch.library.Library("webgpu_once", "DEF")
    _KEPT.append(library)
    library.define("same(Tensor x) -> Tensor")
    op = torch.ops.webgpu_once.same.default
    op.py_impl(torch._C.DispatchKey.CPU)(lambda x: x)
    with pytest.raises(RuntimeError, match="webgpu_once::same"):
        op.py_impl(torch._C.DispatchKey.CPU)(lambda x: x + 1)


def test_an_op_is_kept_from_being_decomposed_as_torch_does_it() -> None:
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    op = torch.ops.aten.layer_norm.default
    kernels = {op: lambda *args, **kwargs: NotImplemented}
    before = op.py_kernels.copy()

    def during(override: Callable[[Any], Any]) -> tuple[Any, ...]:
        with override(kernels):
            has_rule = fake_impls._is_op_registered_to_fake_rule(op)
            table = op.py_kernels
            # By name, because torch makes some of its kernels anew every time.
            names = {key: str(table[key]).partition(" at ")[0] for key in table}
            return names, table[composite], has_rule

    wanted = during(fast_export._override_now)
    for _ in range(2):
        assert during(fast_export._override_decompositions) == wanted
        assert op.py_kernels == before
    assert len(wanted[0]) > len(before)


class Instead(ExportPass):
    """Computes something else where x and y are added."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op = op

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> ProxyValue:
        if op is not ADD:
            return super().call_operator(op, args, kwargs, meta)
        return super().call_operator(self.op, args, {}, meta)


ADD, DIV = exir_ops.edge.aten.add.Tensor, exir_ops.edge.aten.div.Tensor


@pytest.mark.parametrize(
    ("op", "dtype"),
    [(ADD, torch.int32), (DIV, torch.float32)],
)
def test_what_a_pass_changes_is_computed_and_what_follows(
    op: Any, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = torch.export.export(
        Function(lambda x, y: (x + y).abs().repeat(2, 1)), (torch.ones(2, 3).int(),) * 2
    )
    module = to_edge(exported).exported_program().graph_module
    computed: list[str] = []

    def call(interpreter: Any, target: Any, args: Any, kwargs: Any) -> Any:
        computed.append(str(target))
        return call_any(interpreter, target, args, kwargs)

    call_any = fast_export._call_any_function
    monkeypatch.setattr(fast_export, "_call_any_function", call)
    changed = Instead(op)(module).graph_module
    calls = [node for node in changed.graph.nodes if node.op == "call_function"]
    assert {node.meta["val"].dtype for node in calls} == {dtype}
    assert len(computed) == (0 if op is ADD else 3), computed
