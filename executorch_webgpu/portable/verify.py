"""What plans from a file must be, before anything of them is used.

Indices are in range and registers made before they are used, sizes are within what the
profile allows, what is copied fits its buffer's role and type. What depends on live
sizes, such as grids, is checked when these are known (`at_sizes.py`), and that bytes
fit their buffers when these are made (`runtime/executor.py`, `csrc/player/replay.cpp`).
Everything that is said here the C++ player checks as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from ..errors import InvalidBlob
from ..ir.dtypes import DType, Storage, is_converted
from ..ir.expressions import cut
from ..plan.launches import MOST_DISPATCHES
from ..plan.plan import Role
from ..plan.tensor import buffer_bytes
from .at_sizes import MAX_REGISTER, params_bytes
from .plans import Constant, Dispatch, Plans, Port, Profile, Variant

MAX_RANK = 16
MAX_SYMBOLS = 256
MAX_KERNELS = 1 << 12
MAX_KERNEL_TEXT = 1 << 20  # bytes of one kernel
MAX_TEXT = 1 << 26  # bytes of all: their lines may be the same ones
MAX_BINDINGS = 64
MAX_BUFFERS = 1 << 16
MAX_PROFILES = 64
MAX_VARIANTS = 1 << 10
MAX_PORTS = 1 << 12  # inputs of a variant, and outputs
MAX_LIMITS = 64  # of a port
MAX_WORDS = 1 << 12  # parameters of a dispatch
MAX_PARAMS = 1 << 24  # bytes of all of a variant's
MAX_LENGTH = 1 << 31
MAX_LIMIT = 1 << 40  # of a profile
MAX_NAME = 1000  # bytes
MAX_WANTED = 1 << 16  # bytes: sixteen expressions
STATUS_BYTES = 16


def verify(plans: Plans) -> None:
    """Raises InvalidBlob, with what is wrong, unless plans are sound."""
    _Verifier(plans).all()


def _require(met: bool, requirement: str, got: object) -> None:
    if not met:
        raise InvalidBlob(f"plans: {requirement}, got {cut(str(got))}")


def _in(what: str, indices: Iterable[int], count: int) -> None:
    for index in indices:
        if not 0 <= index < count:
            _require(False, f"{what} must be in [0, {count})", index)


def _count(what: str, items: Sequence[object], most: int, least: int = 0) -> None:
    count = len(items)
    _require(least <= count <= most, f"{what} must be {least} to {most}", count)


def _name(text: str, most: int = MAX_NAME) -> None:
    """Names come up in logs: no control character may."""
    is_plain = text.isascii() and text.isprintable()
    if not (is_plain and len(text) <= most) and not (
        _length(text) <= most and _CONTROL.search(text) is None
    ):
        raise InvalidBlob(
            f"plans: a name must have at most {most} bytes and no control characters,"
            f" got {cut(text)!r} ({len(text)} characters)"
        )


def _length(text: str) -> int:
    """In a file."""
    return len(text) if text.isascii() else len(text.encode())


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class _Verifier:
    def __init__(self, plans: Plans) -> None:
        self._plans = plans
        self._registers = len(plans.symbols) + len(plans.literals) + len(plans.code)

    def all(self) -> None:
        plans = self._plans
        self._code()
        self._kernels()
        _count("buffers", plans.buffers, MAX_BUFFERS)
        for buffer in plans.buffers:
            _name(buffer.key)
            sound = 0 < buffer.size < MAX_LENGTH and buffer.size % 4 == 0
            _require(sound, "a buffer's size must be a multiple of 4", buffer.size)
            if buffer.role is Role.STATUS:
                is_large = buffer.size >= STATUS_BYTES
                _require(is_large, f"a status must be {STATUS_BYTES} bytes", buffer)
        for port in plans.ports:
            self._port(port)
        for dispatch in plans.dispatches:
            self._dispatch(dispatch)
        self._constants()
        _count("profiles", plans.profiles, MAX_PROFILES, 1)
        for profile in plans.profiles:
            self._profile(profile)

    def _code(self) -> None:
        plans = self._plans
        _count("sizes", plans.symbols, MAX_SYMBOLS)
        for symbol in plans.symbols:
            _name(symbol.name)
            _require(
                -MAX_LENGTH <= symbol.low <= symbol.high < MAX_LENGTH,
                f"size {symbol.name} must have a range within int32",
                f"[{symbol.low}, {symbol.high}]",
            )
            _require(
                0 < symbol.divisor < MAX_LENGTH and abs(symbol.offset) < MAX_LENGTH,
                f"size {symbol.name} must be found by a divisor and an offset",
                f"{symbol.divisor} and {symbol.offset}",
            )
        for number in plans.literals:
            if abs(number) > MAX_REGISTER:
                _require(False, f"a number must be at most {MAX_REGISTER}", number)
        first = len(plans.symbols) + len(plans.literals)
        for at, (_, left, right) in enumerate(plans.code):
            _in("a register", (left, right), first + at)

    def _kernels(self) -> None:
        plans = self._plans
        lengths = [_length(line) + 1 for line in plans.lines]
        total = 0
        _count("kernels", plans.kernels, MAX_KERNELS)
        for kernel in plans.kernels:
            _name(kernel.label)
            _in("a line", kernel.lines, len(lengths))
            text = sum(lengths[line] for line in kernel.lines)
            total += text
            _require(
                text <= MAX_KERNEL_TEXT and total <= MAX_TEXT,
                f"a kernel must have at most {MAX_KERNEL_TEXT} bytes, and all at most"
                f" {MAX_TEXT}",
                f"{text} and {total}",
            )
            _count("bindings", kernel.access, MAX_BINDINGS)
            _require(
                "uniform" not in kernel.access[:-1],
                f"{kernel.label} must have its uniform binding last",
                kernel.access,
            )

    def _constants(self) -> None:
        plans = self._plans
        filled = {each.buffer for each in plans.constants}
        _require(
            len(filled) == len(plans.constants),
            f"{len(filled)} buffers must have one content each",
            len(plans.constants),
        )
        for constant in plans.constants:
            self._constant(constant)
        # Constants are shared by their content: without any, whose would it be?
        for at, buffer in enumerate(plans.buffers):
            if buffer.role is Role.CONSTANT:
                _require(at in filled, f"{buffer.key} must have a content", "none")

    def _port(self, port: Port) -> None:
        _name(port.name)
        _name(port.wanted, MAX_WANTED)
        self._typed(port.name, port.dtype, port.storage)
        _count("dimensions", port.shape, 0 if port.is_int else MAX_RANK)
        _in("a register", port.shape, self._registers)
        _count("limits", port.limits, MAX_LIMITS)
        for limit in port.limits:
            _name(limit.label)
            _in("a register", (limit.add, limit.count, limit.length), self._registers)
        if port.buffer != -1:
            _in("a buffer", [port.buffer], len(self._plans.buffers))
        if port.is_int:
            _in("a register", [port.value], self._registers)
            of_ints = (DType.INT64, Storage.I32)
            _require((port.dtype, port.storage) == of_ints, "an int is i32", port.name)

    def _typed(self, what: str, dtype: DType, storage: Storage) -> None:
        met = is_converted(dtype, storage)
        _require(met, f"{what} must be held as its type is", storage.value)

    def _constant(self, constant: Constant) -> None:
        _name(constant.data_key)
        self._typed(constant.data_key, constant.dtype, constant.storage)
        _in("a buffer", [constant.buffer], len(self._plans.buffers))
        buffer = self._plans.buffers[constant.buffer]
        _require(
            buffer.role in (Role.CONSTANT, Role.STATE),
            "data must be a constant's or a state's",
            buffer.role.value,
        )
        count = 1
        _count("dimensions", constant.shape, MAX_RANK)
        for extent in constant.shape:
            count *= extent
            _require(count < MAX_LENGTH, f"elements must be < {MAX_LENGTH}", count)
        # Neither more nor less: all that have the same constant are given one buffer.
        wanted = buffer_bytes(count, constant.storage)
        is_filled = buffer.role is Role.STATE or buffer.size == wanted
        _require(
            is_filled and count * constant.storage.size <= buffer.size,
            f"data must fill a buffer of {buffer.size} bytes",
            count * constant.storage.size,
        )

    def _dispatch(self, row: Dispatch) -> None:
        plans = self._plans
        _name(row.label)
        _require(row.call < MAX_LENGTH, "a call's number must be 31 bits", row.call)
        _in("a kernel", [row.kernel], len(plans.kernels))
        _in("a buffer", row.buffers, len(plans.buffers))
        _in("a register", (*row.ranges, *row.params, *row.groups), self._registers)
        _count("parameters", row.params, MAX_WORDS)
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
        # Constants may be those of other delegates, too.
        written = [at for at, kind in zip(row.buffers, access) if kind == "write"]
        roles = {plans.buffers[at].role for at in written}
        _require(
            not roles & {Role.CONSTANT, Role.INPUT},
            f"{row.label} must write to no constant or input",
            [plans.buffers[at].key for at in written],
        )

    def _profile(self, profile: Profile) -> None:
        _name(profile.name)
        align = profile.offset_align
        _require(
            0 < profile.max_binding <= profile.max_buffer <= MAX_LIMIT
            and 0 < profile.max_workgroups < MAX_LENGTH
            and align >= 4
            and align & (align - 1) == 0,
            f"{profile.name} must have plausible limits",
            f"{profile.max_binding}, {profile.max_buffer}, {profile.max_workgroups},"
            f" {align}",
        )
        _count("variants", profile.variants, MAX_VARIANTS, 1)
        first = profile.variants[0]
        used: set[int] = set()
        for variant in profile.variants:
            used |= self._variant(variant, profile)
            self._alike(first, variant)
        self._buffers(used, profile)
        for symbol in self._plans.symbols:
            _in("an input", [symbol.input], len(first.inputs))
            port = self._plans.ports[first.inputs[symbol.input]]
            dims = range(-1, 0) if port.is_int else range(len(port.shape))
            _require(
                symbol.dim in dims,
                f"size {symbol.name} must be found in input {port.name}",
                f"dimension {symbol.dim}",
            )

    def _alike(self, first: Variant, other: Variant) -> None:
        """The arguments of a call are the same whatever variant is taken."""

        def arguments(variant: Variant) -> tuple[object, ...]:
            ports = [self._plans.ports[at] for at in variant.inputs]
            kinds = [(each.is_int, len(each.shape)) for each in ports]
            return kinds, len(variant.outputs)

        _require(
            arguments(first) == arguments(other),
            f"variants must have the arguments {arguments(first)}",
            arguments(other),
        )

    def _variant(self, variant: Variant, profile: Profile) -> set[int]:
        """The buffers that it uses."""
        plans = self._plans
        _in("a register", (g.register for g in variant.guards), self._registers)
        _in("a port", (*variant.inputs, *variant.outputs), len(plans.ports))
        _in("a dispatch", variant.dispatches, len(plans.dispatches))
        _count("dispatches", variant.dispatches, MOST_DISPATCHES)
        _count("inputs", variant.inputs, MAX_PORTS)
        _count("outputs", variant.outputs, MAX_PORTS)
        inputs = [plans.ports[at] for at in variant.inputs]
        outputs = [plans.ports[at] for at in variant.outputs]
        for ports, role in ((inputs, Role.INPUT), (outputs, Role.OUTPUT)):
            for port in ports:
                found = role if port.buffer < 0 else plans.buffers[port.buffer].role
                _require(found is role, f"{port.name} must be an {role.value}", found)
        for port in outputs:
            _require(
                port.is_int or port.buffer >= 0, f"{port.name} must have a buffer", ""
            )
        copied = [port.buffer for port in inputs if port.buffer >= 0]
        _require(
            len(copied) == len(set(copied)),
            "inputs must have buffers of their own",
            copied,
        )
        if variant.status != -1:
            _in("a buffer", [variant.status], len(plans.buffers))
            role = plans.buffers[variant.status].role
            _require(role is Role.STATUS, "a status must be one", role.value)
        used = {port.buffer for port in (*inputs, *outputs)} | {variant.status}
        params = 0
        steps = Counter(variant.dispatches)
        for row, count in ((plans.dispatches[at], n) for at, n in steps.items()):
            self._launch(row, profile)
            used.update(row.buffers)
            params += count * params_bytes(row)
        _require(
            params <= MAX_PARAMS,
            f"parameters must have at most {MAX_PARAMS} bytes in all",
            params,
        )
        return used - {-1}

    def _buffers(self, used: set[int], profile: Profile) -> None:
        """Those of a profile, which are told apart by their roles and keys."""
        named: set[tuple[Role, str]] = set()
        for buffer in (self._plans.buffers[at] for at in used):
            _require(
                buffer.size <= profile.max_buffer,
                f"a buffer must have at most {profile.max_buffer} bytes",
                buffer.size,
            )
            name = (buffer.role, buffer.key)
            if buffer.role is not Role.CONSTANT:
                _require(name not in named, "a buffer must have its own key", name)
                named.add(name)

    def _launch(self, row: Dispatch, profile: Profile) -> None:
        """What a dispatch may ask for in a profile."""
        _require(
            len(row.buffers) <= profile.max_storage_buffers,
            f"{row.label} must have at most {profile.max_storage_buffers} buffers",
            len(row.buffers),
        )
        _require(
            profile.subgroups or not self._plans.kernels[row.kernel].subgroups,
            f"{row.label} must use subgroups only where the profile has them",
            profile.name,
        )
