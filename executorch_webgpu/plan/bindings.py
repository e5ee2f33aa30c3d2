"""Bindings: the buffers of one dispatch in the making, and how they are read.

Enters: tensors, under the names that the kernel knows. Leaves: slots, buffers,
parameters and the code of accessors. A tensor whose producer is inlined has no slot of
its own, but those of the producer's operands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..ir.dtypes import Storage
from . import pointwise, wgsl_text
from .output import Output, Place
from .tensor import Lazy, Tensor, collapse
from .wgsl_text import Param, Slot


@dataclass
class Bindings:
    """What a dispatch binds, in order, with parameters and code for the kernel."""

    slots: list[Slot] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    params: dict[str, Param] = field(default_factory=dict)
    code: list[str] = field(default_factory=list)

    def add(self, slot: Slot, tensor: Tensor) -> None:
        self.slots.append(slot)
        self.tensors.append(tensor)

    def read(self, name: str, tensor: Tensor, vec4: bool = False) -> None:
        """get_x(i), and with `vec4` get_x4(i), for indices of the store."""
        lazy = tensor.lazy
        if lazy is not None:
            self._compute(name, lazy, vec4)
            return
        self.add(Slot(name, tensor.dtype, tensor.storage, vec4=vec4), tensor)

    def read_strided(self, name: str, tensor: Tensor) -> None:
        """get_x(i) for row-major indices of a view."""
        self.read(f"{name}_data", tensor)
        code, params = _strided_getter(name, tensor)
        self.code.append(code)
        self.params.update(params)

    def write(
        self,
        name: str,
        out: Output,
        operands: Mapping[int, Tensor],
        vec4: bool,
        guard: str = "",
    ) -> None:
        """put_y, which first applies the epilogue; `operands` are what that reads."""
        tensor = out.tensor
        slot = Slot(name, out.dtype, tensor.storage, write=True, vec4=vec4, guard=guard)
        if out.epilogue is not None:
            post, steps = f"post_{name}", out.epilogue.steps
            program = pointwise.generate(post, steps, operands, out.shape, out.dtype)
            self._add_program(program)
            two = pointwise.takes_two(steps)
            slot = replace(slot, post=post, stored=out.stored, pair=two)
        if out.taken_place is not None:
            slot = self._placed(slot, out.numel, out.taken_place)
        self.add(slot, tensor)

    @property
    def is_guarded(self) -> bool:
        """Whether something is stored on a condition that the status buffer decides."""
        return any(slot.guard for slot in self.slots)

    def _placed(self, slot: Slot, numel: int, place: Place) -> Slot:
        """The slot of an output that is stored at a place of a larger buffer."""
        self.params[f"place_{slot.name}"] = (numel, place.at, place.span, place.total)
        way = "run" if place.one_run else "runs"
        # A vec4 that would straddle two runs is stored element by element.
        torn = slot.vec4 and not place.in_fours
        return replace(slot, place=way, vec4=slot.vec4 and not torn, torn=torn)

    def _compute(self, name: str, lazy: Lazy, vec4: bool) -> None:
        """get_x of an inlined producer: the value that its buffer would hold."""
        function = f"lazy_{name}"
        program = pointwise.generate(
            function,
            lazy.steps,
            lazy.operands,
            lazy.whole.shape,
            four=vec4,
            both=True,
        )
        self._add_program(program)
        dtype = lazy.whole.dtype
        kind = wgsl_text.compute_type(dtype)
        value = wgsl_text.stored(dtype, Storage.F32, f"{function}(i)")
        self.code.append(f"fn get_{name}(i: i32) -> {kind} {{ return {value}; }}")
        if not vec4:
            return
        components = [f"get_{name}(i * 4 + {k})" for k in range(4)]
        first = ""
        if program.vec4 is not None:
            first = f"let v = {function}4(i); "
            components = [
                wgsl_text.stored(dtype, Storage.F32, f"v[{k}]") for k in range(4)
            ]
        self.code.append(
            f"fn get_{name}4(i: i32) -> vec4<{kind}>"
            f" {{ {first}return vec4<{kind}>({', '.join(components)}); }}"
        )

    def _add_program(self, program: pointwise.Program) -> None:
        self.code.append(program.code)
        self.params.update(program.params)
        for name, tensor in program.inputs.items():
            self.read(name, tensor, name in (program.vec4 or ()))

    def shared(self) -> Bindings:
        """One binding where two inputs are the same buffer, to stay within limits."""
        kept = Bindings(params=self.params)
        aliases: list[str] = []
        for slot, tensor in zip(self.slots, self.tensors):
            twin = None if slot.write or slot.vec4 else kept._twin(tensor)
            if twin is None:
                kept.add(slot, tensor)
                continue
            kind = wgsl_text.compute_type(slot.dtype)
            aliases.append(
                f"fn get_{slot.name}(i: i32) -> {kind}"
                f" {{ return {kind}(get_{twin.name}(i)); }}"
            )
        kept.code = [*aliases, *self.code]
        return kept

    def _twin(self, tensor: Tensor) -> Slot | None:
        """The slot that reads the same buffer, one element at a time."""
        for slot, other in zip(self.slots, self.tensors):
            same = tensor.store is not None and other.store is tensor.store
            same = same and other.window == tensor.window
            if same and not slot.write and not slot.vec4:
                return slot
        return None


def _strided_getter(name: str, tensor: Tensor) -> tuple[str, dict[str, Param]]:
    """get_x for a view: from a row-major index to the element in the store."""
    layout = collapse(tensor.shape, [tensor.strides])
    kind = wgsl_text.compute_type(tensor.dtype)
    lines = [f"fn get_{name}(index: i32) -> {kind} {{", "  var i = index;"]
    lines.append(f"  var at = {name}_s_at(0);")
    for dim in range(len(layout.shape) - 1, 0, -1):
        lines.append(f"  at += (i % {name}_n_at({dim})) * {name}_s_at({dim + 1});")
        lines.append(f"  i = i / {name}_n_at({dim});")
    lines.append(f"  at += i * {name}_s_at(1);")
    lines.append(f"  return get_{name}_data(at);\n}}")
    params: dict[str, Param] = {
        f"{name}_n": layout.shape,
        f"{name}_s": (tensor.offset, *layout.strides[0]),
    }
    return "\n".join(lines), params
