"""The arguments that passes know by name are those of the op functions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import MISSING, fields

import pytest
import torch
import torch.ao.quantization.fx._decomposed

from executorch_webgpu import ir
from executorch_webgpu.ir.signatures import AttendCached, RmsNorm, Signature
from executorch_webgpu.plan import registry
from executorch_webgpu.plan.pointwise import FORMULAS

# Run by other op functions only, or without arguments: in no graph that passes make.
_INNER = {"webgpu.round_codes", "webgpu.slice_at", "webgpu.pointwise"}


def declared(kind: type[Signature] = Signature) -> Iterator[type[Signature]]:
    for child in kind.__subclasses__():
        yield child
        yield from declared(child)


@pytest.mark.parametrize("kind", declared(), ids=lambda kind: kind.__name__)
def test_fields_are_the_parameters_of_the_op_function(kind: type[Signature]) -> None:
    op = registry.find(kind.NAME)
    assert op is not None
    names = [field.name for field in fields(kind)]
    _, *parameters = inspect.signature(op.function).parameters.values()
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        # An elementwise op takes what its formula does: the schema tells how many.
        _, name, overload = kind.NAME.split(".")
        found = getattr(getattr(torch.ops.quantized_decomposed, name), overload)
        assert len(names) == len(found._schema.arguments)
        return
    positional = [p for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert names == [p.name for p in positional]
    for field, parameter in zip(fields(kind), positional):
        if field.default is not MISSING:
            assert field.default == parameter.default


def test_every_op_that_passes_make_is_declared() -> None:
    made = {name for name in registry.all_ops() if name.startswith("webgpu.")}
    known = {kind.NAME for kind in declared()}
    assert made - set(FORMULAS) - _INNER == {
        name for name in known if name.startswith("webgpu.")
    }


def test_a_call_is_read_and_written_by_name() -> None:
    call = ir.Call("webgpu.rms_norm", [ir.Ref(3), None, 1e-5], [7])
    assert RmsNorm.of(call) == RmsNorm(x=ir.Ref(3), weight=None, eps=1e-5)
    attend = AttendCached(ir.Ref(1), ir.Ref(2), ir.Ref(3), ir.Expr("s0"), None)
    attend.write_to(call)
    # Arguments at the end that have their default are left out.
    assert call.args == [ir.Ref(1), ir.Ref(2), ir.Ref(3), ir.Expr("s0"), None]
    assert AttendCached.of(call) == attend
    assert (call.op, call.outputs) == ("webgpu.attend_cached", [7])
    with pytest.raises(AssertionError, match=r"webgpu\.attend_cached"):
        RmsNorm.of(call)
