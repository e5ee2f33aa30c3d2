"""What plans from a file must be, before anything of them is used.

Indices are in range and registers made before they are used, sizes are within what the
profile allows, what is copied fits its buffer's role and type. What depends on live
sizes, such as grids, is checked when these are known (`at_sizes.py`), and that bytes
fit their buffers when these are made (`runtime/executor.py`, `csrc/player/replay.cpp`).
Everything that is said here the C++ player checks as well.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import InvalidBlob
from ..ir.dtypes import SUPPORTED, DType, Storage
from ..plan.launches import MOST_DISPATCHES
from ..plan.plan import Role
from .at_sizes import MAX_REGISTER
from .plans import Constant, Dispatch, Plans, Port, Profile, Variant

MAX_RANK = 16
MAX_WORDS = 1 << 12  # parameters of a dispatch
MAX_LENGTH = 1 << 31


def verify(plans: Plans) -> None:
    """Raises InvalidBlob, with what is wrong, unless plans are sound."""
    _Verifier(plans).all()


def is_converted(dtype: DType, storage: Storage) -> bool:
    """Whether every player can make the elements of a buffer of those of a type."""
    if dtype is DType.FLOAT16:
        return storage is not Storage.I32
    held = Storage.F32 if dtype.is_float else Storage.I32
    return dtype in SUPPORTED and storage is held


def _require(met: bool, requirement: str, got: object) -> None:
    if not met:
        raise InvalidBlob(f"plans: {requirement}, got {got}")


def _in(what: str, indices: Iterable[int], count: int) -> None:
    for index in indices:
        _require(0 <= index < count, f"{what} must be in [0, {count})", index)


class _Verifier:
    def __init__(self, plans: Plans) -> None:
        self._plans = plans
        self._registers = len(plans.symbols) + len(plans.literals) + len(plans.code)

    def all(self) -> None:
        plans = self._plans
        self._code()
        for kernel in plans.kernels:
            _in("a line", kernel.lines, len(plans.lines))
            uniforms = kernel.access.count("uniform")
            is_last = uniforms == 0 or kernel.access[-1] == "uniform"
            _require(uniforms <= 1 and is_last, "a uniform must be last", kernel.access)
        for buffer in plans.buffers:
            sound = 0 < buffer.size < MAX_LENGTH and buffer.size % 4 == 0
            _require(sound, "a buffer's size must be a multiple of 4", buffer.size)
        for port in plans.ports:
            self._port(port)
        for constant in plans.constants:
            self._constant(constant)
        for dispatch in plans.dispatches:
            self._dispatch(dispatch)
        _require(bool(plans.profiles), "profiles must be at least 1", 0)
        for profile in plans.profiles:
            self._profile(profile)

    def _code(self) -> None:
        plans = self._plans
        for symbol in plans.symbols:
            _require(
                0 <= symbol.low <= symbol.high < MAX_LENGTH,
                f"size {symbol.name} must have a range",
                f"[{symbol.low}, {symbol.high}]",
            )
            _require(symbol.divisor > 0, "a divisor must be positive", symbol.divisor)
            in_range = abs(symbol.offset) < MAX_LENGTH and symbol.divisor < MAX_LENGTH
            _require(in_range, "a symbol's place must be 32 bits", symbol.offset)
            _require(-1 <= symbol.dim < MAX_RANK, "a dimension must exist", symbol.dim)
        for number in plans.literals:
            _require(
                abs(number) <= MAX_REGISTER, f"a number must be {MAX_REGISTER}", number
            )
        first = len(plans.symbols) + len(plans.literals)
        for at, (_, left, right) in enumerate(plans.code):
            _in("a register", (left, right), first + at)

    def _port(self, port: Port) -> None:
        self._typed(port.name, port.dtype, port.storage)
        _require(len(port.shape) <= MAX_RANK, "a rank must be 16", len(port.shape))
        _in("a register", (*port.shape, port.value), self._registers)
        for limit in port.limits:
            _in("a register", (limit.add, limit.count, limit.length), self._registers)
        if port.buffer != -1:
            _in("a buffer", [port.buffer], len(self._plans.buffers))
        if port.is_int:
            of_ints = (DType.INT64, Storage.I32)
            _require((port.dtype, port.storage) == of_ints, "an int is i32", port.name)

    def _typed(self, what: str, dtype: DType, storage: Storage) -> None:
        met = is_converted(dtype, storage)
        _require(met, f"{what} must be held as its type is", storage.value)

    def _constant(self, constant: Constant) -> None:
        self._typed(constant.data_key, constant.dtype, constant.storage)
        _in("a buffer", [constant.buffer], len(self._plans.buffers))
        buffer = self._plans.buffers[constant.buffer]
        _require(
            buffer.role in (Role.CONSTANT, Role.STATE),
            "data must be a constant's or a state's",
            buffer.role.value,
        )
        count = 1
        _require(len(constant.shape) <= MAX_RANK, "a rank must be 16", constant.shape)
        for extent in constant.shape:
            count *= extent
            _require(count < MAX_LENGTH, f"elements must be < {MAX_LENGTH}", count)
        _require(
            count * constant.storage.size <= buffer.size,
            f"data must fit a buffer of {buffer.size} bytes",
            count * constant.storage.size,
        )

    def _dispatch(self, row: Dispatch) -> None:
        plans = self._plans
        _in("a kernel", [row.kernel], len(plans.kernels))
        _in("a buffer", row.buffers, len(plans.buffers))
        _in("a register", (*row.ranges, *row.params, *row.groups), self._registers)
        _require(
            len(row.params) <= MAX_WORDS, "parameters must be few", len(row.params)
        )
        access = plans.kernels[row.kernel].access
        has_uniform = "uniform" in access
        _require(
            len(access) == len(row.buffers) + bool(row.params)
            and has_uniform == bool(row.params),
            f"{row.label} must have the {len(access)} bindings of its kernel",
            len(row.buffers) + bool(row.params),
        )
        _require(
            len(row.ranges) in (0, 2 * len(row.buffers)),
            "what is bound must be pairs for all buffers, or nothing",
            len(row.ranges),
        )
        written = [at for at, kind in zip(row.buffers, access) if kind == "write"]
        roles = {plans.buffers[at].role for at in written}
        _require(
            not roles & {Role.CONSTANT, Role.INPUT},
            f"{row.label} must write to no constant or input",
            [plans.buffers[at].key for at in written],
        )

    def _profile(self, profile: Profile) -> None:
        limits = (profile.max_buffer, profile.max_binding, profile.offset_align)
        _require(min(limits) > 0, "limits must be positive", limits)
        _require(bool(profile.variants), f"{profile.name} must have variants", 0)
        first = profile.variants[0]
        for variant in profile.variants:
            self._variant(variant, profile)
            same = (len(variant.inputs), len(variant.outputs))
            _require(
                same == (len(first.inputs), len(first.outputs)),
                "variants must have the same arguments",
                same,
            )
        for symbol in self._plans.symbols:
            _in("an input", [symbol.input], len(first.inputs))

    def _variant(self, variant: Variant, profile: Profile) -> None:
        plans = self._plans
        _in("a register", (g.register for g in variant.guards), self._registers)
        _in("a port", (*variant.inputs, *variant.outputs), len(plans.ports))
        _in("a dispatch", variant.dispatches, len(plans.dispatches))
        count = len(variant.dispatches)
        _require(
            count <= MOST_DISPATCHES,
            f"a plan must have at most {MOST_DISPATCHES} dispatches",
            count,
        )
        for rows, role in (
            (variant.inputs, Role.INPUT),
            (variant.outputs, Role.OUTPUT),
        ):
            for port in (plans.ports[at] for at in rows):
                found = role if port.buffer < 0 else plans.buffers[port.buffer].role
                _require(found is role, f"{port.name} must be an {role.value}", found)
        used = {at for n in variant.dispatches for at in plans.dispatches[n].buffers}
        for buffer in (plans.buffers[at] for at in used):
            _require(
                buffer.size <= profile.max_buffer,
                f"a buffer must have at most {profile.max_buffer} bytes",
                buffer.size,
            )
        if variant.status != -1:
            _in("a buffer", [variant.status], len(plans.buffers))
            status = plans.buffers[variant.status]
            is_one = status.role is Role.STATUS and status.size >= 16
            _require(is_one, "a status must be 16 bytes of its own", status)
