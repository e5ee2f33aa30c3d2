"""A Vulkan graph -> values and calls as this package has them, at their largest sizes.

Enters: a graph as `blob.py` reads it, ids unchecked. Leaves: a draft, whose tensors
have the file's extents, the largest, and whose integers are names, `v<id>`. What they
are at other sizes `infer.py` finds out.

What Vulkan's files have otherwise: scalars and lists are values, too, and their types
may be lost (a file has one value for 1 and 1.0, and none for a dtype); calls of fused
ops; `et_vk.prepack` on the way from a constant to its readers; buffers that calls
write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .. import ir
from ..errors import InvalidBlob, Unsupported
from ..ir.dtypes import DType
from ..ir.verify import MAX_VALUES
from ..plan import registry
from ..plan.load_graph import Parameter, signature_of
from .adapt import ADAPTERS, Transform
from .blob import VkCall, VkGraph, VkIds, VkSymInt, VkTensor
from .constants import ConstantData, GetData

PREPACK = "et_vk.prepack.default"
# Integers that Vulkan's graphs compute from sizes.
INT_OPS = frozenset({"sym_size.int", "add", "sub", "mul", "floordiv"})
# Calls that only check what the exported program promised.
_CHECKS = frozenset({"_assert_scalar.default", "sym_constrain_range_for_size.default"})
# Where a name has no namespace.
_NAMESPACES = ("", "llama.", "et_vk.", "aten.")
# Items of all lists that calls refer to: many calls may refer to one.
_MAX_LISTED = 1 << 21
# Its codes are of int8, which its result's type, of zero points, does not say.
_PER_TOKEN = "quantized_decomposed.choose_qparams_per_token_asymmetric.default"


@dataclass(frozen=True)
class IntCall:
    """An integer computed from sizes: the value `name`."""

    op: str
    args: list[ir.Arg]
    name: str


@dataclass
class Draft:
    """A graph at its largest sizes, and what is needed to find the others."""

    constants: ConstantData
    graph: ir.Graph = field(default_factory=ir.Graph)
    calls: list[ir.Call | IntCall] = field(default_factory=list)


def translate(vk: VkGraph, get_data: GetData) -> Draft:
    """The draft of a graph; InvalidBlob, MissingData, or Unsupported for an op that
    this package has not."""
    if len(vk.values) > MAX_VALUES:
        raise InvalidBlob(
            f"Vulkan graph must have at most {MAX_VALUES} values, got {len(vk.values)}"
        )
    return _Translator(vk, get_data).draft()


class _Translator:
    def __init__(self, vk: VkGraph, get_data: GetData) -> None:
        self._vk = vk
        self._draft = Draft(ConstantData(get_data))
        self._graph = self._draft.graph
        # What each of the file's tensors is now: a call may write to it.
        self._now: dict[int, int] = {}
        self._ints: set[int] = set()  # the file's integers that are defined
        self._states: dict[int, int] = {}  # the file's id -> the state
        self._left = _MAX_LISTED
        self._written = self._all_written()

    def draft(self) -> Draft:
        for index in self._vk.inputs:
            self._add_input(index)
        for call in self._vk.calls:
            self._add_call(call)
        for index in self._vk.outputs:
            self._add_output(index)
        for index, state in self._states.items():
            if self._now[index] != state:
                self._graph.mutations[state] = self._now[index]
        return self._draft

    # -- values --------------------------------------------------

    def _item(self, index: int) -> Any:
        if not 0 <= index < len(self._vk.values):
            raise InvalidBlob(
                f"Vulkan value must be one of {len(self._vk.values)}, got {index}"
            )
        return self._vk.values[index]

    def _new(self, name: str, tensor: VkTensor, dtype: DType | None = None) -> int:
        dims = tensor.dims
        kind = tensor.dtype if dtype is None else dtype
        return self._graph.add(ir.Value(name, kind, dims, dims))

    def _add_input(self, index: int) -> None:
        item = self._item(index)
        if index in self._now or index in self._ints:
            raise InvalidBlob(f"Vulkan input must be given once, got {index} twice")
        if isinstance(item, VkSymInt):
            self._ints.add(index)
            name = f"v{index}"
            value = ir.Value(name, DType.INT64, (), (), is_int=True, symbol=name)
            self._graph.inputs.append(self._graph.add(value))
        elif isinstance(item, VkTensor) and item.constant < 0:
            made = self._new(f"v{index}", item, item.boundary)
            self._graph.inputs.append(made)
            self._now[index] = self._cast(made, item.dtype)
        else:
            raise InvalidBlob(
                f"Vulkan input must be a tensor or an integer, got value {index}"
            )

    def _add_output(self, index: int) -> None:
        if isinstance(self._item(index), VkSymInt) and index in self._ints:
            name = f"v{index}"
            value = ir.Value(name, DType.INT64, (), (), is_int=True, symbol=name)
            self._graph.outputs.append(self._graph.add(value))
            return
        item, value_index = self._item(index), self._tensor(index)
        self._graph.outputs.append(self._cast(value_index, item.boundary))

    def _cast(self, index: int, dtype: DType) -> int:
        """A value in another type, where the boundary has one and kernels another."""
        value = self._graph.values[index]
        if value.dtype is dtype:
            return index
        made = self._graph.add(replace(value, dtype=dtype, data_key="", state=""))
        args: list[ir.Arg] = [ir.Ref(index)]
        self._draft.calls.append(ir.Call("aten._to_copy.default", args, [made]))
        return made

    def _tensor(self, index: int) -> int:
        """What a tensor of the file is where it is read."""
        if index in self._now:
            return self._now[index]
        item = self._item(index)
        if not isinstance(item, VkTensor) or item.constant < 0:
            raise InvalidBlob(
                f"Vulkan value must be a tensor that is defined, got value {index}"
            )
        made = self._constant(index, item)
        if index in self._written:
            self._become_state(index, made)
        self._now[index] = made
        return made

    def _constant(self, index: int, item: VkTensor) -> int:
        name, count = f"v{index}", len(self._vk.constants)
        if item.constant >= count:
            raise InvalidBlob(
                f"Vulkan constant of {name} must be one of {count}, got {item.constant}"
            )
        source = self._vk.constants[item.constant]
        key = self._draft.constants.add(name, item, source)
        return self._graph.add(
            ir.Value(name, item.dtype, item.dims, item.dims, data_key=key)
        )

    def _become_state(self, index: int, value: int) -> None:
        self._graph.values[value].state = f"v{index}"
        self._states[index] = value

    # -- calls --------------------------------------------------

    def _all_written(self) -> set[int]:
        """The file's tensors that calls write to: a constant of them is a state."""
        defined: set[int] = set()
        written: set[int] = set()
        for call in self._vk.calls:
            found = _find(call.name)
            for position in () if found is None else found.mutates:
                written |= {i for n, i in enumerate(call.args) if n == position}
            if call.args:
                results = self._results(call.args[-1])
                written |= {each for each in results if each in defined}
                defined |= set(results)
        return written

    def _results(self, index: int) -> tuple[int, ...]:
        item = self._item(index)
        if not isinstance(item, VkIds):
            return (index,)
        self._spend(len(item.ids))
        return item.ids

    def _spend(self, items: int) -> None:
        self._left -= items
        if self._left < 0:
            raise InvalidBlob(
                f"Vulkan calls must have lists of at most {_MAX_LISTED} items, got more"
            )

    def _add_call(self, call: VkCall) -> None:
        if call.name in _CHECKS:
            return
        if not call.args:
            raise InvalidBlob(
                f"Vulkan call of {call.name} must have a result, got none"
            )
        *given, result = call.args
        if call.name in INT_OPS:
            self._add_int(call.name, given, result)
            return
        if call.name == PREPACK and len(given) == 1:
            self._prepack(given[0], result)
            return
        args = [self._arg(each) for each in given]
        outs = [self._output(call.name, each) for each in self._results(result)]
        if not outs:
            raise InvalidBlob(
                f"{call.name}: a Vulkan call must have a result, got none"
            )
        adapter = ADAPTERS.get(call.name)
        if adapter is None:
            found = _known(call.name)
            made = list(outs)
            made += [self._write(call, position) for position in found.mutates]
            self.call(found.name, args, made)
        else:
            adapter(self, args, outs)
        for each, value in zip(self._results(result), outs):
            self._now[each] = value

    # -- what adapters use --------------------------------------------------

    def value(self, arg: ir.Arg) -> ir.Value:
        if not isinstance(arg, ir.Ref):
            raise InvalidBlob(f"Vulkan call must have a tensor here, got {arg}")
        return self._graph.values[arg.id]

    def add(self, value: ir.Value) -> int:
        return self._graph.add(value)

    def call(self, op: str, args: Sequence[ir.Arg], outs: list[int]) -> None:
        fitted = self._fitted(_known(op), list(args), outs)
        self._draft.calls.append(ir.Call(op, fitted, outs))

    def constant(self, arg: ir.Arg, dtype: DType, transform: Transform) -> ir.Arg:
        value = self.value(arg)
        if not value.is_constant:
            raise InvalidBlob(f"{value.name}: a weight must be a constant")
        made = self._draft.constants.transformed(value, dtype, transform)
        return ir.Ref(self._graph.add(made))

    def _prepack(self, source: int, result: int) -> None:
        """A constant as its readers have it: the same one, or what they write to."""
        value = self._tensor(source)
        if result in self._written and self._graph.values[value].is_constant:
            value = self._graph.add(replace(self._graph.values[value]))
            self._become_state(result, value)
        self._now[result] = value

    def _add_int(self, op: str, given: list[int], result: int) -> None:
        if not isinstance(self._item(result), VkSymInt):
            raise InvalidBlob(f"Vulkan call of {op} must make an integer")
        self._draft.calls.append(
            IntCall(op, [self._arg(each) for each in given], f"v{result}")
        )
        self._ints.add(result)

    def _write(self, call: VkCall, position: int) -> int:
        """The new content of what a call writes to, which is a result of it here."""
        if position >= len(call.args) - 1:
            raise InvalidBlob(
                f"Vulkan call of {call.name} must have argument {position}"
            )
        index = call.args[position]
        old = self._graph.values[self._tensor(index)]
        self._now[index] = self._graph.add(replace(old, data_key="", state=""))
        return self._now[index]

    def _output(self, op: str, index: int) -> int:
        item = self._item(index)
        if isinstance(item, VkSymInt):
            raise Unsupported(
                f"{op}: a result must be a tensor, got an integer that only data knows"
            )
        if not isinstance(item, VkTensor):
            raise InvalidBlob(f"{op}: a result must be a tensor, got value {index}")
        return self._new(f"v{index}", item)

    # -- arguments --------------------------------------------------

    def _arg(self, index: int, is_listed: bool = False) -> ir.Arg:
        item = self._item(index)
        match item:
            case VkTensor():
                return ir.Ref(self._tensor(index))
            case VkSymInt():
                if index not in self._ints:
                    raise InvalidBlob(
                        f"Vulkan integer must be defined before it is used, got {index}"
                    )
                return ir.Expr(f"v{index}")
            case VkIds(ids=ids):
                if is_listed:
                    raise InvalidBlob(
                        f"Vulkan list must have no list in it, got value {index}"
                    )
                self._spend(len(ids))
                return [self._arg(each, is_listed=True) for each in ids]
            case list():
                self._spend(len(item))
        plain: ir.Arg = item
        return plain

    def _fitted(
        self, found: registry.Op, args: list[ir.Arg], outs: list[int]
    ) -> list[ir.Arg]:
        """The arguments as the op's parameters are annotated."""
        parameters = signature_of(found.function).parameters
        values = self._graph.values
        kinds = [values[out].dtype for out in outs]
        dtype = next((each for each in kinds if not each.is_float), kinds[0])
        if found.name == _PER_TOKEN:
            dtype = DType.INT8
        elif ".dequantize" in found.name and args and isinstance(args[0], ir.Ref):
            dtype = values[args[0].id].dtype
        fitted = [_fitting(p, arg, dtype) for p, arg in zip(parameters, args)]
        return [*fitted, *args[len(parameters) :]]


def _find(name: str) -> registry.Op | None:
    for namespace in _NAMESPACES:
        found = registry.find(namespace + name)
        if found is not None:
            return found
    return None


def _known(name: str) -> registry.Op:
    found = _find(name)
    if found is None:
        raise Unsupported(
            f"VulkanBackend: each op must be one that executorch_webgpu has, got {name}"
        )
    return found


def _fitting(parameter: Parameter, arg: ir.Arg, dtype: DType) -> ir.Arg:
    """An argument that lost its type in the file, as the parameter has it."""
    if parameter.accepts(arg):
        return arg
    candidates: list[ir.Arg] = [dtype] if arg is None else []
    if isinstance(arg, float) and arg.is_integer():
        candidates.append(int(arg))
    if isinstance(arg, list):
        candidates.append([int(i) if isinstance(i, float) else i for i in arg])
        candidates.append([bool(i) if isinstance(i, int) else i for i in arg])
    return next((each for each in candidates if parameter.accepts(each)), arg)
