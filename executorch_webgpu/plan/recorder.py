"""Graph: what an op function works with while it plans one call.

An op function rejects what it cannot do, chooses a kernel, and dispatches it.
The graph collects the dispatches and the stores they touch; `planner.py` runs
the op functions in order and turns the result into a Plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import ir
from ..errors import Unsupported
from ..ir.dtypes import DType, Storage, storage_of
from . import pointwise, registry, wgsl_text, windows
from .bindings import Bindings
from .caps import Caps
from .plan import PARAMS_ALIGN, Choice, Constant, Pipeline, Role
from .pointwise import Program
from .tensor import ConstantSource, DataInt, Lazy, Store, Tensor, Window, row_major
from .wgsl_text import Param

__all__ = ["DataInt", "Graph", "Tensor"]

# A one-dimensional job is folded so that no grid dimension exceeds this.
_FOLD = 32768
_WORKGROUP = 64
# Outputs of fewer elements are computed one by one, which compiles faster.
_VEC4_FROM = 4096
# Elements that a CPU adapter computes again for every read whatever it costs.
_FEW = 2048


@dataclass(frozen=True)
class Launch:
    """A dispatch whose stores have no buffers yet."""

    pipeline: int
    stores: tuple[Store, ...]
    windows: tuple[Window | None, ...]  # of the stores; None: all of it
    params: int
    params_size: int
    groups: tuple[int, int, int]
    label: str
    call: int


class Graph:
    """The plan in the making, for one set of live shapes."""

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self.launches: list[Launch] = []
        self.pipelines: dict[Pipeline, int] = {}
        self.constants: dict[str, tuple[Store, Constant]] = {}
        self.params = bytearray()
        self.status = Store(Role.STATUS, 16, "status")
        self.checked = False
        self.label = ""
        self.call = -1
        # What the steps in a tensor's `post` refer to.
        self.values: dict[int, Tensor] = {}
        # Sizes of temporaries at the upper bound, by call and order within it.
        self.bounds: dict[tuple[int, int], int] = {}
        # Whether the current call may change a tensor's store: the planner knows.
        self.may_overwrite: Callable[[Tensor], bool] = lambda tensor: False
        # The ops that read a constant, by its key: what one packs another can use.
        self.readers: Mapping[str, Collection[str]] = {}
        # Choices met, and what measuring says of them, by key.
        self.choices: dict[str, Choice] = {}
        self.tuned: Mapping[str, str] = {}
        # The output of the current call that its reader can compute by itself.
        self.deferrable: Tensor | None = None
        self.deferred_reads = 0  # how often it will read each element
        # Stores of concatenations that are written before their call, by its index.
        self.wholes: dict[int, Store] = {}
        self._temporaries = 0
        self._contiguous: dict[tuple[object, ...], Tensor] = {}

    # -- what an op says -------------------------------------------------------

    def require(self, met: bool, requirement: str, got: object) -> None:
        """Refuses the op unless `met`: `<op>: <requirement>, got <got>`."""
        if not met:
            raise Unsupported(f"{requirement}, got {got}")

    def begin(self, call: int, label: str) -> None:
        self.call, self.label, self._temporaries = call, label, 0

    def choose(
        self, kernel: str, shape: Sequence[int], names: Sequence[str], dtype: DType
    ) -> str:
        """One of several forms that compute the same: the first, or the fastest.

        `shape` is what the cost depends on. Sizes that differ little share a
        measurement, so every form must be right for every shape.
        """
        if len(names) == 1:
            return names[0]
        sizes = "x".join(str(_size_class(size)) for size in shape)
        key = f"{kernel} {sizes} {dtype.label}"
        tuned = self.tuned.get(key, names[0])
        chosen = tuned if tuned in names else names[0]
        self.choices.setdefault(key, Choice(key, tuple(names), chosen, self.call))
        return chosen

    # -- tensors ---------------------------------------------------------------

    def tensor(
        self, shape: Sequence[int], dtype: DType, bound: int | None = None
    ) -> Tensor:
        """A tensor without a buffer yet; `bound` is its largest element count."""
        numel = math.prod(shape)
        bound = max(numel, bound or 0)
        self.require(
            bound < 2**31, "a tensor must have fewer than 2^31 elements", bound
        )
        storage = storage_of(dtype, self.caps.f16)
        return Tensor(tuple(shape), dtype, storage, row_major(shape), bound=bound)

    def temp(self, shape: Sequence[int], dtype: DType) -> Tensor:
        """A temporary of the current call."""
        key = (self.call, self._temporaries)
        self._temporaries += 1
        bound = max(math.prod(shape), self.bounds.get(key, 0))
        self.bounds[key] = bound
        return self.tensor(shape, dtype, bound)

    def number(self, value: int | float, dtype: DType) -> Tensor:
        """A tensor of one element with a known value."""
        out = self.temp((), dtype)
        self.pointwise([ir.Step("aten.full.default", [[], value], dtype)], {}, out)
        return out

    def alias(self, out: Tensor, view: Tensor) -> None:
        """Makes `out` another view of `view`'s elements: nothing is computed."""
        if out.post or view.dtype is not out.dtype:
            self.copy(view, out)
            return
        self.require(
            view.numel == out.numel,
            f"a view must have {out.numel} elements",
            view.numel,
        )
        out.store, out.source = view.store, view.source
        out.strides, out.offset = view.strides, view.offset

    def contiguous(self, x: Tensor) -> Tensor:
        """`x` with its elements in row-major order, copied only if they are not."""
        whole = x.source is None or x.numel == math.prod(x.source.shape)
        if x.is_contiguous and whole:
            return x
        if x.source is not None:
            return self._constant(x, "", (), x.shape, x.dtype)
        key = (x.store, x.shape, x.strides, x.offset)
        if key not in self._contiguous:
            out = self.temp(x.shape, x.dtype)
            self.copy(x, out)
            self._contiguous[key] = out
        return self._contiguous[key]

    def once(self, name: str, x: Tensor, make: Callable[[], Tensor]) -> Tensor:
        """What `make` computes of `x` alone, once for all calls that ask for it."""
        key = (x.store, x.source, x.shape, x.strides, x.offset, name)
        if key not in self._contiguous:
            self._contiguous[key] = make()
        return self._contiguous[key]

    def settle(self, x: Tensor) -> None:
        """Computes the elements of `x` now if they wait for their reader."""
        lazy = x.lazy
        if lazy is not None:
            assert lazy.whole is not None
            self.pointwise(lazy.steps, lazy.operands, lazy.whole)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """The elements of `x` in another shape, without a copy where possible."""
        view = x.try_view(shape)
        if view is not None:
            return view
        return self.contiguous(x).with_view(shape, row_major(shape))

    def copy(self, x: Tensor, out: Tensor) -> None:
        """Writes the elements of `x`, converted, to `out`."""
        self.pointwise([_copied(out.dtype)], {0: x}, out)

    def copy_into(self, x: Tensor, out: Tensor, part: Tensor) -> None:
        """Writes the elements of `x`, converted, to a view of `out`, whose other
        elements are left alone, however large the buffers are."""
        self._write_pieces([_copied(out.dtype)], {0: x}, out, part)

    def update(self, x: Tensor, out: Tensor) -> None:
        """Gives `out` the elements of `x`, for a kernel to change some of them.

        A state that nothing reads any more is changed where it is, others are
        copied.
        """
        if x.dtype is not out.dtype or out.post or not self.may_overwrite(x):
            self.copy(x, out)
            return
        out.store, out.strides, out.offset = x.store, x.strides, x.offset
        stale = [key for key in self._contiguous if key[0] is x.store]
        for key in stale:
            del self._contiguous[key]

    def prepack(
        self,
        x: Tensor,
        packing: str,
        shape: Sequence[int],
        dtype: DType | None = None,
        args: Sequence[int] = (),
    ) -> Tensor:
        """The constant `x`, laid out on the host by `host_packing.py` once, at load."""
        if x.source is None:
            raise AssertionError(f"{self.label}: only a constant can be prepacked")
        dtype = x.dtype if dtype is None else dtype
        return self._constant(x, packing, tuple(args), tuple(shape), dtype)

    def _constant(
        self,
        x: Tensor,
        packing: str,
        args: tuple[int, ...],
        shape: tuple[int, ...],
        dtype: DType,
    ) -> Tensor:
        source = x.source
        assert source is not None
        # A packing sees the shape of the view; else only the elements matter.
        same = x.shape == source.shape or (
            not packing and x.numel == math.prod(source.shape)
        )
        whole = same and x.is_contiguous
        view = None if whole else (x.shape, x.strides, x.offset)
        storage = storage_of(dtype, self.caps.f16)
        key = f"{source.key}|{storage.value}|{view or ''}|{packing}{args or ''}"
        if key not in self.constants:
            store = Store(Role.CONSTANT, _bytes(math.prod(shape), storage), key)
            constant = Constant(
                -1, source.key, source.dtype, storage, source.shape, view, packing, args
            )
            self.constants[key] = (store, constant)
        store = self.constants[key][0]
        # A rearranged copy is no longer the source's elements: it cannot be packed.
        made = source if whole else None
        if packing:
            made = ConstantSource(source.key, dtype, shape)
        out = Tensor(shape, dtype, storage, row_major(shape), 0, store, made)
        out.bound = out.numel
        return out

    # -- kernels ---------------------------------------------------------------

    def pointwise(
        self, steps: Sequence[ir.Step], operands: dict[int, Tensor], out: Tensor
    ) -> None:
        """One kernel that computes a whole program of elementwise steps.

        If the planner allows it, none: who reads the elements computes them.
        """
        if self.is_large(*operands.values(), out):
            self._write_pieces(steps, operands, out)
            return
        four = max(out.bound, out.numel) >= _VEC4_FROM
        program = pointwise.generate("program", steps, operands, out.shape, four=four)
        if out is self.deferrable and self._may_wait(program, out):
            self.deferrable = None
            whole = replace(out, post=[], final=None, place=None)
            out.store = Lazy(Role.SCRATCH, 0, "", -1, -1, steps, operands, whole)
            return
        self._launch_program(program, out)

    def is_large(self, *tensors: Tensor) -> bool:
        """Whether one of the tensors is in a buffer that cannot be bound whole."""
        return any(self._store_bytes(x) > self.caps.max_binding for x in tensors)

    def _store_bytes(self, x: Tensor) -> int:
        if x.store is not None:
            return 0 if x.lazy else self._store(x).size
        if x.source is not None:
            return _bytes(math.prod(x.source.shape), x.storage)
        storage = storage_of(x.stored, self.caps.f16)
        return _bytes(max(x.bound, x.numel), storage)

    def _write_pieces(
        self,
        steps: Sequence[ir.Step],
        operands: dict[int, Tensor],
        out: Tensor,
        part: Tensor | None = None,
    ) -> None:
        """A program for `out`, or a view of it, by launches that each bind a window of
        what is too large."""
        self.require(
            not out.post, "what is written in pieces must have no epilogue", out.post
        )
        out.place = None
        self._allocate(out)
        target = out if part is None else replace(part, store=out.store)
        for x in operands.values():
            self.settle(x)
        # One order besides that of the output takes few pieces, several take many.
        one_order = len(operands) == 1 and target.is_contiguous
        stored = []
        for x in operands.values():
            if not one_order and self.is_large(x) and not windows.is_in_order(x):
                x = self.contiguous(x)
            stored.append(replace(x, store=self._store(x)))
        four = max(out.bound, out.numel) >= _VEC4_FROM
        for piece in windows.pieces(stored, target, self.caps):
            parts = dict(zip(operands, piece.operands))
            shape = piece.out.shape
            program = pointwise.generate("program", steps, parts, shape, four=four)
            self._launch_program(program, piece.out)

    def fitting(self, x: Tensor) -> Tensor:
        """`x`, out of a buffer that cannot be bound whole: copied, if it is a view
        that is small enough."""
        small = _bytes(x.numel, x.storage) <= self.caps.max_binding
        if x.store is None or not small or not self.is_large(x):
            return x

        def copied() -> Tensor:
            out = self.temp(x.shape, x.dtype)
            self.copy(x, out)
            return out

        return self.once("fitting", x, copied)

    def _launch_program(self, program: Program, out: Tensor) -> None:
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

    def _may_wait(self, program: Program, out: Tensor) -> bool:
        """Whether the reader can compute a program's elements, and at no loss.

        A report has to name the call that it is about. On a CPU adapter time is in
        loads, and divisions are slow: to load more than a buffer would cost, or to
        divide every index as often as it is read, pays only for few elements.
        """
        if wgsl_text.reports_in(program.code):
            return False
        reads, loads = self.deferred_reads, len(program.inputs)
        if reads == 1 or not self.caps.is_cpu:
            return True
        dear = program.divides or reads * loads > loads + 1 + reads
        return not dear or max(out.bound, out.numel) <= _FEW

    def dispatch(  # noqa: PLR0913  all that a launch may have, by keyword
        self,
        kernel: str,
        inputs: Mapping[str, Tensor],
        outputs: Mapping[str, Tensor],
        params: Mapping[str, Param] | None = None,
        *,
        invocations: int | None = None,
        workgroups: int | None = None,
        groups: tuple[int, int, int] | None = None,
        workgroup: int = _WORKGROUP,
        consts: Mapping[str, int | float | bool] | None = None,
        types: Mapping[str, str] | None = None,
        vec4: Collection[str] = (),
        strided: Collection[str] = (),
        raw: Collection[str] = (),
        code: str = "",
    ) -> None:
        """Launches `wgsl/<kernel>.wgsl`.

        Of `workgroup` invocations there are so many workgroups as make `invocations`
        (which the kernel counts by `invocation(i)`), or `workgroups` (it counts them
        by `group_invocation(group, id)`), or `groups`, a grid of the kernel's own.
        Inputs are made contiguous first, except
        those in `strided`, whose get_x(i) takes the row-major index of the view;
        for those in `raw` the kernel does its own arithmetic on the store.
        Bindings in `vec4` are read or written four elements at a time.
        """
        values: dict[str, Param] = dict(params or {})
        if invocations is not None:
            values["n"] = invocations
            groups = _folded(-(-invocations // workgroup))
        if workgroups is not None:
            values["workgroups"] = workgroups
            groups = _folded(workgroups)
        assert groups is not None
        for tensor in outputs.values():
            self._allocate(tensor)
        if 0 in groups or any(t.numel == 0 for t in outputs.values()):
            return
        bound = self._bind(inputs, outputs, vec4, strided, raw)
        if self._needed(kernel, bound, code) > self.caps.max_storage_buffers:
            for tensor in inputs.values():
                self.settle(tensor)
            bound = self._bind(inputs, outputs, vec4, strided, raw)
        code = "\n".join([*bound.code, code])
        values.update(bound.params)
        checked = wgsl_text.reports(kernel, code)
        if checked:
            values["call"] = self.call
        self._check_slots(bound, checked)
        constants = {"WG": workgroup, **(consts or {})}
        text = wgsl_text.assemble(
            kernel, bound.slots, values, constants, types or {}, code, checked
        )
        self._launch(kernel, text, bound, values, checked, groups)

    def _bind(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Mapping[str, Tensor],
        vec4: Collection[str],
        strided: Collection[str],
        raw: Collection[str],
    ) -> Bindings:
        """The bindings of a kernel: inputs as they are, or copied into a row."""
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
        for name, tensor in outputs.items():
            storage = storage_of(tensor.stored, self.caps.f16)
            operands = self._post_operands(tensor)
            bound.write(name, tensor, storage, operands, name in vec4)
        return bound.shared()

    def _needed(self, kernel: str, bound: Bindings, code: str) -> int:
        """The storage buffers that a kernel takes."""
        checked = wgsl_text.reports(kernel, "\n".join([*bound.code, code]))
        return len(bound.slots) + checked

    def _launch(
        self,
        kernel: str,
        text: str,
        bound: Bindings,
        params: Mapping[str, Param],
        checked: bool,
        groups: tuple[int, int, int],
    ) -> None:
        access = tuple("write" if slot.write else "read" for slot in bound.slots)
        stores = [self._store(tensor) for tensor in bound.tensors]
        ranges = [tensor.window for tensor in bound.tensors]
        for store, window in zip(stores, ranges):
            self._check_size(store, window)
        if checked:
            access, stores = (*access, "write"), [*stores, self.status]
            ranges.append(None)
            self.checked = True
        offset = size = -1
        if params:
            access = (*access, "uniform")
            data = wgsl_text.pack_params(params)
            offset, size = len(self.params), len(data)
            self.params += data + bytes(-len(data) % PARAMS_ALIGN)
        pipeline = Pipeline(kernel, text, access)
        index = self.pipelines.setdefault(pipeline, len(self.pipelines))
        for store in stores:
            store.first = len(self.launches) if store.first < 0 else store.first
            store.last = len(self.launches)
        self.launches.append(
            Launch(
                index,
                tuple(stores),
                tuple(ranges),
                offset,
                size,
                groups,
                self.label,
                self.call,
            )
        )

    def _check_size(self, store: Store, window: Window | None) -> None:
        """Refuses what an adapter cannot have, or not bind."""
        what, limit = "buffer", self.caps.max_buffer
        if window is None and self.caps.max_binding <= limit:
            what, limit = "binding", self.caps.max_binding
        self.require(
            store.size <= limit,
            f"a tensor must fit a {what} of {limit} bytes",
            store.size,
        )

    def run(self, name: str, *args: Any, out: Any) -> None:
        """Plans another op as part of this one."""
        found = registry.find(name)
        assert found is not None, name
        found.function(self, *args, out=out)

    def _post_operands(self, tensor: Tensor) -> dict[int, Tensor]:
        keys = {key for step in tensor.post for a in step.args for key in ir.refs(a)}
        return {key: self.fitting(self.values[key]) for key in sorted(keys)}

    def _allocate(self, tensor: Tensor) -> None:
        if tensor.store is None and tensor.place is not None:
            tensor.store = tensor.place.store
        if tensor.store is None:
            storage = storage_of(tensor.stored, self.caps.f16)
            size = _bytes(max(tensor.bound, tensor.numel), storage)
            tensor.store = Store(Role.SCRATCH, size, "")

    def _store(self, tensor: Tensor) -> Store:
        if tensor.store is None:
            assert tensor.source is not None, f"{self.label}: input has no content"
            source = tensor.source
            whole = tensor.with_view(source.shape, row_major(source.shape), 0)
            # A view may have another type: integers seen as floats.
            tensor.store = self._constant(
                whole, "", (), source.shape, tensor.dtype
            ).store
        store = tensor.store
        if isinstance(store, Lazy):
            store = None if store.whole is None else store.whole.store
        assert store is not None
        return store

    def _check_slots(self, bound: Bindings, checked: bool) -> None:
        needed = len(bound.slots) + checked
        limit = self.caps.max_storage_buffers
        self.require(
            needed <= limit, f"a kernel may use {limit} storage buffers", needed
        )
        pairs = list(zip(bound.slots, bound.tensors))
        written = {id(tensor.store) for slot, tensor in pairs if slot.write}
        for slot, tensor in pairs:
            clash = not slot.write and id(tensor.store) in written
            assert not clash, f"{self.label}: {slot.name} is read and written at once"


def _folded(workgroups: int) -> tuple[int, int, int]:
    """A grid of at least so many workgroups, with no dimension too large."""
    if workgroups <= _FOLD:
        return (workgroups, 1, 1)
    return (_FOLD, -(-workgroups // _FOLD), 1)


def _copied(dtype: DType) -> ir.Step:
    return ir.Step("aten._to_copy.default", [ir.Ref(0)], dtype)


def _size_class(size: int) -> int:
    """The size itself if small, else the next power of two."""
    return size if size <= 4 else 1 << (size - 1).bit_length()


def _bytes(numel: int, storage: Storage) -> int:
    """Rounded up, so that a buffer can be bound as vec4 and copied whole."""
    return max(16, -(-numel * storage.size // 16) * 16)
