"""Recorder: what an op function works with while it plans one call.

An op function rejects what it cannot do, chooses a kernel, and dispatches it.
`lower_calls.py` runs the op functions in order, and `assemble_plan.py` turns the
dispatches that they record here into a Plan.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .. import ir
from ..ir.dtypes import DType
from . import pointwise, registry, wgsl_text, windows
from .bindings import Bindings
from .buffers import Buffers
from .caps import Caps
from .launches import Binding, Kernel, Launches
from .output import Output
from .plan import Choice, Limit, Role
from .pointwise import Program
from .tensor import ConstantSource, DataInt, Lazy, Store, Tensor, row_major
from .traced_int import is_traced, plain
from .wgsl_text import Const, Param

__all__ = ["DataInt", "Output", "Recorder", "Tensor"]

# A longer one-dimensional grid is wrapped into two dimensions.
_MAX_GRID = 32768
_WORKGROUP = 64
# Outputs of fewer elements are computed one by one, which compiles faster.
_VEC4_FROM = 4096
# Elements up to which a CPU adapter may recompute at every read, whatever it costs.
_FEW = 2048
# The condition on which a state is written: that the call has not failed so far.
_IS_CLEAN = "is_clean()"


class Recorder(Buffers):
    """The plan in the making, for one set of live shapes.

    `readers` are the ops that read a constant, by its key: what one packs another can
    use. `tuned` are the forms that autotune found to be the fastest, by the choice's
    key. `bounds` is as in `Buffers`. With `undoes`, what is written to a state before a
    report is undone after it.
    """

    def __init__(
        self,
        caps: Caps,
        readers: Mapping[str, Collection[str]] | None = None,
        tuned: Mapping[str, str] | None = None,
        bounds: dict[tuple[int, int], int] | None = None,
        undoes: bool = False,
    ) -> None:
        super().__init__(caps, {} if bounds is None else bounds)
        self.readers = readers or {}
        self.launches = Launches(caps)
        self.choices: dict[str, Choice] = {}  # met so far, by key
        # Of integers that are data, by their store and by what is limited.
        self.limits: dict[Store, dict[tuple[int, int, int], Limit]] = defaultdict(dict)
        self.undoes = undoes
        self._tuned = tuned or {}
        self._undo: list[Callable[[], None]] = []
        self._guard = _IS_CLEAN
        # What `once` has made of a tensor's elements, by where they are.
        self._once: dict[object, dict[tuple[object, ...], Tensor]] = defaultdict(dict)

    # -- what an op says -------------------------------------------------------

    def choose(
        self, kernel: str, shape: Sequence[int], names: Sequence[str], dtype: DType
    ) -> str:
        """One of several forms that compute the same: the first, or what autotune
        found to be the fastest.

        `shape` is what the cost depends on. Sizes that differ little share a
        measurement, so every form must be right for every shape.
        """
        if len(names) == 1:
            return names[0]
        sizes = "x".join(str(_size_class(size)) for size in shape)
        key = f"{kernel} {sizes} {dtype.label}"
        if self.caps.f16_accumulate and dtype is DType.FLOAT16:
            key += ", sums in f16"
        tuned = self._tuned.get(key, names[0])
        chosen = tuned if tuned in names else names[0]
        choice = Choice(key, tuple(names), chosen, self._call.index)
        self.choices.setdefault(key, choice)
        return chosen

    # -- tensors ---------------------------------------------------------------

    def number(self, value: int | float, dtype: DType) -> Tensor:
        """A tensor of one element with a known value."""
        out = self.temp((), dtype)
        self.pointwise([ir.Step("aten.full.default", [[], value], dtype)], {}, out)
        return out

    def alias(self, out: Output, view: Tensor) -> None:
        """Makes `out` another view of `view`'s elements: nothing is computed."""
        if out.epilogue is not None or view.dtype is not out.dtype:
            self.copy(view, out)
            return
        self.require(
            view.numel == out.numel,
            f"a view must have {out.numel} elements",
            view.numel,
        )
        out.becomes(replace(view, shape=out.shape, bound=out.bound))

    def contiguous(self, x: Tensor) -> Tensor:
        """`x` with its elements in row-major order, copied only if they are not."""
        source = x.source
        if x.is_contiguous and (source is None or _is_whole(x, source)):
            return x
        if source is not None and not is_traced(*x.shape, *x.strides, x.offset):
            return self.constants.copied(x)
        return self.once("contiguous", x, lambda: self._copied(x))

    def _copied(self, x: Tensor) -> Tensor:
        out = self.temp(x.shape, x.dtype)
        self.copy(x, out)
        return out

    def limit(self, at: DataInt, count: int, length: int) -> None:
        """Requires of an integer that only data knows that `count` positions from it
        on are in [0, length). Kernels need not look: the call fails before they run."""
        store = at.tensor.store
        assert store is not None
        assert store.role is Role.INPUT
        if count > 0:
            asked = (at.add, count, length)
            self.limits[store].setdefault(asked, Limit(self._call.op, *asked))

    def once(self, name: str, x: Tensor, make: Callable[[], Tensor]) -> Tensor:
        """What `make` computes of `x` alone, recorded once for all calls that ask."""
        made, key = self._once[x.origin], (x.shape, x.strides, x.offset, name)
        if key not in made:
            made[key] = make()
        return made[key]

    def fitting(self, x: Tensor) -> Tensor:
        """`x`; a view that fits a binding, of a store that does not, is copied."""
        small = x.numel * x.storage.size <= self.caps.max_binding
        if x.store is None or not small or not self.is_large(x):
            return x
        return self.once("fitting", x, lambda: self._copied(x))

    def settle(self, x: Tensor) -> None:
        """Stores the elements of `x` now if their producer was to be inlined."""
        lazy = x.lazy
        if lazy is not None:
            assert isinstance(lazy.whole, Output)
            self.pointwise(lazy.steps, lazy.operands, lazy.whole)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """The elements of `x` in another shape, without a copy where possible."""
        view = x.try_view(shape)
        if view is not None:
            return view
        return self.contiguous(x).with_view(shape, row_major(shape))

    def copy(self, x: Tensor, out: Output | Tensor) -> None:
        """Writes the elements of `x`, converted, to `out`."""
        self.pointwise([_copy_step(out.dtype)], {0: x}, out)

    def copy_into(self, x: Tensor, view: Tensor) -> None:
        """Writes the elements of `x`, converted, to a view of a buffer, whose other
        elements are left alone, however large the buffers are."""
        self._write_pieces([_copy_step(view.dtype)], {0: x}, view)

    def update(self, x: Tensor, out: Output) -> bool:
        """Gives `out` the elements of `x`, for a kernel to change some of them.

        A state that nothing reads any more is changed where it is: then the kernel must
        not report, and with `undoes` the change is to be undone. Others are copied.
        Returns whether `x` is changed.
        """
        free = x.is_contiguous and x.store in self._call.overwritable
        if x.dtype is not out.dtype or out.epilogue is not None or not free:
            self.copy(x, out)
            return False
        out.becomes(replace(x, shape=out.shape, bound=out.bound))
        self._once.pop(x.origin, None)
        return True

    def on_failure(self, undo: Callable[[], None]) -> None:
        """Has `undo` record, at the end of the plan, dispatches that write to states
        only if something was reported."""
        self._undo.append(undo)

    def end_calls(self) -> None:
        """Records what undoes writes to states, the last one first; no dispatch reports
        from here on."""
        self._guard = f"!{_IS_CLEAN}"
        for undo in reversed(self._undo):
            undo()
        self._guard = "" if self.launches.status is None else _IS_CLEAN

    # -- kernels ---------------------------------------------------------------

    def pointwise(
        self,
        steps: Sequence[ir.Step],
        operands: Mapping[int, Tensor],
        out: Output | Tensor,
    ) -> None:
        """Records an elementwise program: one dispatch, several if buffers are too
        large to bind, or none if it is inlined into its reader."""
        if self.is_large(*operands.values(), out):
            target = self.whole(out) if isinstance(out, Output) else out
            self._write_pieces(steps, operands, target)
            return
        four = out.bound >= _VEC4_FROM
        program = pointwise.generate("program", steps, operands, out.shape, four=four)
        if isinstance(out, Output) and self._may_inline(program, out):
            whole = Output(out.shape, out.dtype, out.bound)
            out.becomes(self.over(out, Lazy(steps, operands, whole)))
            return
        self._dispatch_program(program, out)

    def _write_pieces(
        self, steps: Sequence[ir.Step], operands: Mapping[int, Tensor], out: Tensor
    ) -> None:
        """An elementwise program for `out`, a view of a buffer, by dispatches that each
        bind a window of what is too large."""
        for x in operands.values():
            self.settle(x)
        # One operand in another order than the output's takes few pieces, several many.
        one_order = len(operands) == 1 and out.is_contiguous
        stored = []
        for x in operands.values():
            if not one_order and self.is_large(x) and not windows.is_in_order(x):
                x = self.contiguous(x)
            stored.append(replace(x, origin=self.store_of(x)))
        four = out.bound >= _VEC4_FROM
        for piece in windows.pieces(stored, out, self.caps):
            views = dict(zip(operands, piece.operands))
            shape = piece.out.shape
            program = pointwise.generate("program", steps, views, shape, four=four)
            self._dispatch_program(program, piece.out)

    def _dispatch_program(self, program: Program, out: Output | Tensor) -> None:
        single = program.vec4 is None
        self.dispatch(
            "elementwise" if single else "elementwise_vec4",
            program.inputs,
            {"y": out},
            program.params,
            invocations=out.numel if single else -(-out.numel // 4),
            vec4=() if program.vec4 is None else {"y", *program.vec4},
            code=program.code,
            raw=program.inputs.keys(),
        )

    def _may_inline(self, program: Program, out: Output) -> bool:
        """Whether an elementwise program can be inlined into its reader, at no loss.

        A report has to name the call that it is about, so what reports is dispatched.
        On a CPU adapter time is in loads, and divisions are slow: to load more than a
        buffer would cost, or to divide every index as often as it is read, pays only
        for few elements.
        """
        if not out.reads or out.epilogue or wgsl_text.reports_in(program.code):
            return False
        loads = len(program.inputs)
        if out.reads == 1 or not self.caps.is_cpu:
            return True
        expensive = program.divides or out.reads * loads > loads + 1 + out.reads
        return not expensive or out.bound <= _FEW

    def dispatch(
        self,
        kernel: str,
        inputs: Mapping[str, Tensor],
        outputs: Mapping[str, Output | Tensor],
        params: Mapping[str, Param] | None = None,
        *,
        invocations: int | None = None,
        workgroups: int | tuple[int, int, int] = 0,
        workgroup: int = _WORKGROUP,
        consts: Mapping[str, Const] | None = None,
        vec4: Collection[str] = (),
        strided: Collection[str] = (),
        raw: Collection[str] = (),
        code: str = "",
    ) -> None:
        """Records a dispatch of the kernel `<kernel>.wgsl`.

        A workgroup has `workgroup` invocations. The grid is one of: as many workgroups
        as make `invocations`, for each of which the kernel's `invocation(i)` runs;
        `workgroups`, for whose invocations `group_invocation(group, id)` runs; or a
        tuple of workgroups, for a kernel with a `main` of its own.

        Inputs are made contiguous first, except those in `strided`, whose get_x(i)
        takes the row-major index of the view, and those in `raw`, whose get_x(i) takes
        an index of the store. Bindings in `vec4` are read or written four elements at a
        time. An output that is a tensor is written where it is.
        """
        values: dict[str, Param] = dict(params or {})
        if invocations is not None:
            values["n"] = invocations
            groups = _wrapped_grid(-(-invocations // workgroup))
        elif isinstance(workgroups, int):
            values["workgroups"] = workgroups
            groups = _wrapped_grid(workgroups)
        else:
            groups = workgroups
        targets = {
            name: out if isinstance(out, Output) else Output.over(out)
            for name, out in outputs.items()
        }
        for out in targets.values():
            self.allocate(out)
        if 0 in groups or any(out.numel == 0 for out in targets.values()):
            return
        bound = self._bind(inputs, targets, vec4, strided, raw)
        if self._needed(kernel, bound, code) > self.caps.max_storage_buffers:
            for tensor in inputs.values():
                self.settle(tensor)
            bound = self._bind(inputs, targets, vec4, strided, raw)
        code = "\n".join([*bound.code, code])
        values.update(bound.params)
        reports = wgsl_text.reports(kernel, code)
        if reports:
            values["call"] = self._call.index
        declared: dict[str, Const] = {"WG": workgroup, **(consts or {})}
        status = reports or bound.is_guarded
        bindings = self._checked_bindings(bound, status)
        text = wgsl_text.assemble(kernel, bound.slots, values, declared, code, status)
        launched = Kernel(kernel, text, reports, bound.is_guarded)
        call = (self._call.op, self._call.index)
        self.launches.add(launched, bindings, values, groups, *call)

    def _bind(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Mapping[str, Output],
        vec4: Collection[str],
        strided: Collection[str],
        raw: Collection[str],
    ) -> Bindings:
        """The bindings of a kernel: inputs as they are, or made contiguous."""
        bound = Bindings()
        for name, tensor in inputs.items():
            if name in raw:
                bound.read(name, tensor, name in vec4)
            elif name in strided and not (
                tensor.is_contiguous or self.is_large(tensor)
            ):
                bound.read_strided(name, tensor)
            else:
                bound.read(name, self.contiguous(tensor), name in vec4)
        for name, out in outputs.items():
            guard = self._guard if out.tensor.is_state else ""
            bound.write(name, out, self._fitting_operands(out), name in vec4, guard)
        return bound.shared()

    def _fitting_operands(self, out: Output) -> dict[int, Tensor]:
        """What the epilogue reads, copied where it could not be bound."""
        operands = {} if out.epilogue is None else out.epilogue.operands
        return {key: self.fitting(operands[key]) for key in sorted(operands)}

    def _needed(self, kernel: str, bound: Bindings, code: str) -> int:
        """The storage buffers that a kernel takes."""
        reports = wgsl_text.reports(kernel, "\n".join([*bound.code, code]))
        return len(bound.slots) + (reports or bound.is_guarded)

    def _checked_bindings(self, bound: Bindings, status: bool) -> list[Binding]:
        """The bound stores: no more than may be, and none both read and written."""
        needed = len(bound.slots) + status
        limit = self.caps.max_storage_buffers
        self.require(
            needed <= limit, f"a kernel may use {limit} storage buffers", needed
        )
        made = [
            Binding(tensor, self.store_of(tensor), tensor.window, slot.write)
            for slot, tensor in zip(bound.slots, bound.tensors)
        ]
        written = {binding.store for binding in made if binding.write}
        for slot, binding in zip(bound.slots, made):
            clash = not slot.write and binding.store in written
            assert not clash, f"{self._call.op}: {slot.name} is read and written"
        return made

    def run(self, name: str, *args: Any, out: Output | list[Output]) -> None:
        """Runs the op function of another op, within the current call."""
        found = registry.find(name)
        assert found is not None, name
        found.function(self, *args, out=out)


def _wrapped_grid(workgroups: int) -> tuple[int, int, int]:
    """A grid of at least so many workgroups, wrapped where it is too long."""
    if workgroups <= _MAX_GRID:
        return (workgroups, 1, 1)
    return (_MAX_GRID, -(-workgroups // _MAX_GRID), 1)


def _copy_step(dtype: DType) -> ir.Step:
    return ir.Step("aten._to_copy.default", [ir.Ref(0)], dtype)


def _size_class(size: int) -> int:
    """The size itself if small, else the next power of two."""
    value = plain(size)  # only autotune looks at classes, and that traces nothing
    return value if value <= 4 else 1 << (value - 1).bit_length()


def _is_whole(x: Tensor, source: ConstantSource) -> bool:
    """Whether the buffer of a constant serves for `x`, which is contiguous: it is all
    of it, or the beginning, of a size that varies, and is not uploaded for each."""
    return is_traced(x.numel) or x.numel == math.prod(source.shape)
