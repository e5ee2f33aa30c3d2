"""Plans of a file -> the Plan for live shapes, by evaluating registers.

Enters: plans that `verify.py` has checked, and a device's caps. Leaves: plans as the
planner makes them, which the executor and the replay play. What is refused is refused
in the words of the C++ player (`csrc/player/size_code.cpp`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from ..errors import InvalidBlob, InvalidInput, UnfitDevice
from ..ir.dtypes import DType, Storage
from ..plan import plan as planned
from ..plan.caps import Caps
from ..plan.constants import content_name
from ..plan.live_shapes import Live
from ..plan.plan import PARAMS_ALIGN, Pipeline, Plan, PortKind, Role
from ..plan.size_code import OPERATORS
from .plans import Constant, Dispatch, Plans, Port, Profile, Symbol, Variant

# Every player computes with integers of at most 53 bits.
MAX_REGISTER = 1 << 53


# What a device must have at least, by the field of a profile and of caps.
_LIMITS = {
    "max_storage_buffers": "max-storage-buffers-per-shader-stage",
    "max_binding": "max-storage-buffer-binding-size",
    "max_buffer": "max-buffer-size",
    "max_workgroups": "max-compute-workgroups-per-dimension",
    "max_invocations": "max-compute-invocations-per-workgroup",
    "workgroup_memory": "max-compute-workgroup-storage-size",
}

# What a device may have, and options switch off.
_FEATURES = {"is_cpu": "cpu-adapter", "f16": "shader-f16", "subgroups": "subgroups"}


def fitting_profile(plans: Plans, caps: Caps, device: Caps | None = None) -> Profile:
    """The first profile that a device fits; UnfitDevice, with what the last one asks
    for, if it fits none. `device` is what it has, where options allow only `caps`."""
    for profile in plans.profiles:
        lacking = _lacking(profile, caps, device or caps)
        if not lacking:
            return profile
    raise UnfitDevice(
        f"{caps.name}: the device must have, for profile {profile.name}, {lacking}"
    )


def _lacking(profile: Profile, caps: Caps, device: Caps) -> str:
    """What a device lacks, in the words of csrc/player/profile.cpp; "" if nothing."""
    for field, name in _FEATURES.items():
        if getattr(profile, field) and not getattr(caps, field):
            got = "it switched off" if getattr(device, field) else "none"
            return f"{name}, got {got}"
    for field, name in _LIMITS.items():
        wanted, found = getattr(profile, field), getattr(caps, field)
        if found < wanted:
            return f"{name} of {wanted}, got {found}"
    if profile.offset_align % caps.offset_align:
        return (
            "min-storage-buffer-offset-alignment of at most"
            f" {profile.offset_align}, got {caps.offset_align}"
        )
    return ""


class FilePlanner:
    """Makes plans from a file's: as Planner does, without planning."""

    def __init__(self, plans: Plans, profile: Profile) -> None:
        self._plans = plans
        self.profile = profile
        self._ports = profile.variants[0].inputs
        used = sorted({at for each in profile.variants for at in _buffers(plans, each)})
        self._numbers = {index: number for number, index in enumerate(used)}
        self._constants = tuple(
            planned.Constant(self._numbers[row.buffer], *_content(row))
            for row in plans.constants
            if row.buffer in self._numbers
        )
        # Constants are shared with other delegates: named by what is in them alone.
        keys = {each.buffer: _shared_key(each) for each in self._constants}
        self._table = [
            planned.Buffer(row.role, row.size, keys.get(number, row.key))
            if row.role is Role.CONSTANT
            else planned.Buffer(row.role, row.size, row.key)
            for number, row in enumerate(plans.buffers[at] for at in used)
        ]
        most = max(
            sum(params_bytes(plans.dispatches[at]) for at in each.dispatches)
            for each in profile.variants
        )
        self._params = len(self._table)
        if most:
            self._table.append(planned.Buffer(Role.PARAMS, most, f"params{most}"))

    def pipelines(self) -> list[Pipeline]:
        """The kernels of all variants, so that all can be compiled at load."""
        used = dict.fromkeys(
            self._plans.dispatches[at].kernel
            for each in self.profile.variants
            for at in each.dispatches
        )
        return [self._pipeline(index) for index in used]

    def upper_bound(self) -> Plan:
        """The plan for the largest sizes."""
        return self._at(self._run([symbol.high for symbol in self._plans.symbols], ()))

    def plan(self, inputs: Sequence[Live]) -> Plan:
        """The plan for live input shapes (of tensors) and values (of integers);
        InvalidInput if they were not exported."""
        registers = self.registers(inputs)
        plan = self._at(registers)
        # What holds for the first variant's inputs must hold for this one's.
        for port, live in zip(plan.inputs, inputs):
            if not isinstance(live, int) and port.shape != tuple(live):
                raise InvalidBlob(
                    f"{port.name} must have one shape in all variants,"
                    f" got {port.shape} and {tuple(live)}"
                )
        return plan

    def registers(self, inputs: Sequence[Live]) -> list[int]:
        """All registers; InvalidInput if the inputs are not what was exported."""
        if len(inputs) != len(self._ports):
            raise InvalidInput(f"inputs must be {len(self._ports)}, got {len(inputs)}")
        ports = [self._plans.ports[at] for at in self._ports]
        for port, live in zip(ports, inputs):
            if port.is_int != isinstance(live, int):
                kinds = (
                    ("an int", "a tensor") if port.is_int else ("a tensor", "an int")
                )
                raise InvalidInput(
                    f"{port.name}: input must be {kinds[0]}, got {kinds[1]}"
                )
            if not isinstance(live, int) and len(live) != len(port.shape):
                raise InvalidInput(
                    f"input {port.name} must have {len(port.shape)} dimensions,"
                    f" got {list(live)}"
                )
        symbols = [self._value(each, inputs) for each in self._plans.symbols]
        registers = self._run(symbols, inputs)
        for port, live in zip(ports, inputs):
            shape = [registers[at] for at in port.shape]
            if not isinstance(live, int) and shape != list(live):
                raise _misshapen(port, live)
        return registers

    def variant(self, registers: Sequence[int]) -> Variant:
        """The first whose guards hold; InvalidInput if none does."""
        for variant in self.profile.variants:
            if all(g.low <= registers[g.register] <= g.high for g in variant.guards):
                return variant
        symbols = self._plans.symbols
        got = ", ".join(
            f"{each.name}={value}" for each, value in zip(symbols, registers)
        )
        exported = ", ".join(f"{s.name} in [{s.low}, {s.high}]" for s in symbols)
        raise InvalidInput(
            f"no plan for sizes {got[:500]}: exported were {exported[:500]}"
        )

    def _value(self, symbol: Symbol, inputs: Sequence[Live]) -> int:
        live = inputs[symbol.input]
        extent = live if isinstance(live, int) else live[symbol.dim]
        value, rest = divmod(extent - symbol.offset, symbol.divisor)
        if rest and isinstance(live, int):
            raise InvalidInput(
                f"size {symbol.name} must be a whole number,"
                f" got ({live} - {symbol.offset}) / {symbol.divisor}"
            )
        if rest and not isinstance(live, int):
            raise _misshapen(self._plans.ports[self._ports[symbol.input]], live)
        if not symbol.low <= value <= symbol.high:
            raise InvalidInput(
                f"size {symbol.name} must be in [{symbol.low}, {symbol.high}],"
                f" got {value} (inputs {str(list(inputs))[:500]})"
            )
        return value

    def _at(self, registers: Sequence[int]) -> Plan:
        return self._plan(self.variant(registers), registers)

    def _run(self, symbols: Sequence[int], inputs: Sequence[Live]) -> list[int]:
        """All registers; `inputs` are for the message."""
        registers = [*symbols, *self._plans.literals]
        for name, left, right in self._plans.code:
            value = int(OPERATORS[name].compute(registers[left], registers[right]))
            if abs(value) > MAX_REGISTER:
                raise InvalidInput(
                    "sizes must make numbers of at most 53 bits, got more"
                    f" (inputs {str(list(inputs))[:500]})"
                )
            registers.append(value)
        return registers

    def _plan(self, variant: Variant, registers: Sequence[int]) -> Plan:
        kernels: dict[int, int] = {}
        params = bytearray()
        dispatches = []
        for row in (self._plans.dispatches[at] for at in variant.dispatches):
            kernel = kernels.setdefault(row.kernel, len(kernels))
            dispatches.append(self._dispatch(row, kernel, params, registers))
        inputs, outputs = (
            tuple(self._port(self._plans.ports[at], registers) for at in rows)
            for rows in (variant.inputs, variant.outputs)
        )
        return Plan(
            tuple(self._table),
            self._constants,
            tuple(map(self._pipeline, kernels)),
            tuple(dispatches),
            bytes(params),
            inputs,
            outputs,
            self._number(variant.status),
            symbols=dict(zip((each.name for each in self._plans.symbols), registers)),
        )

    def _pipeline(self, index: int) -> Pipeline:
        row = self._plans.kernels[index]
        text = "\n".join(self._plans.lines[at] for at in row.lines)
        return Pipeline(row.label, text, row.access)

    def _dispatch(
        self, row: Dispatch, kernel: int, params: bytearray, registers: Sequence[int]
    ) -> planned.Dispatch:
        buffers = [self._numbers[index] for index in row.buffers]
        x, y, z = (registers[at] for at in row.groups)
        # What is not launched may have any numbers.
        is_empty = 0 in (x, y, z)
        bound = [] if is_empty else [registers[at] for at in row.ranges]
        offset = size = -1
        if row.params:
            words = [0 if is_empty else registers[at] for at in row.params]
            if not -(1 << 31) <= min(words) <= max(words) < 1 << 32:
                raise InvalidBlob(f"{row.label}: parameters must be 32 bits")
            data = struct.pack(f"<{len(words)}I", *(each % (1 << 32) for each in words))
            offset, size = len(params), len(data)
            params += data + bytes(params_bytes(row) - len(data))
            buffers.append(self._params)
        made = planned.Dispatch(
            kernel,
            tuple(buffers),
            offset,
            size,
            (x, y, z),
            row.label,
            row.call,
            tuple(zip(bound[::2], bound[1::2])),
        )
        self._check(made)
        return made

    def _check(self, step: planned.Dispatch) -> None:
        """What depends on sizes: the grid, and what is bound."""
        most = self.profile.max_workgroups
        if not all(0 <= count <= most for count in step.groups):
            raise InvalidBlob(
                f"{step.label}: a grid must be in [0, {most}], got {step.groups}"
            )
        for offset, size in filter(None, step.ranges):
            is_placed = offset >= 0 and offset % self.profile.offset_align == 0
            if not is_placed or size <= 0 or size % 4:
                raise InvalidBlob(
                    f"{step.label}: a binding must be at a multiple of"
                    f" {self.profile.offset_align}, got {size} bytes at {offset}"
                )

    def _port(self, row: Port, registers: Sequence[int]) -> planned.Port:
        shape = tuple(registers[at] for at in row.shape)
        if any(not 0 <= extent < 1 << 31 for extent in shape):
            raise InvalidBlob(f"{row.name}: extents must be 32 bits, got {shape}")
        return planned.Port(
            row.name,
            PortKind.INT if row.is_int else PortKind.TENSOR,
            self._number(row.buffer),
            row.dtype,
            row.storage,
            shape,
            registers[row.value] if row.is_int else 0,
            tuple(
                planned.Limit(
                    each.label,
                    registers[each.add],
                    registers[each.count],
                    registers[each.length],
                )
                for each in row.limits
            ),
        )

    def _number(self, buffer: int) -> int:
        return -1 if buffer < 0 else self._numbers[buffer]


def _buffers(plans: Plans, variant: Variant) -> Iterator[int]:
    """The buffers that a variant binds or copies."""
    for at in variant.dispatches:
        yield from plans.dispatches[at].buffers
    for at in (*variant.inputs, *variant.outputs):
        if plans.ports[at].buffer >= 0:
            yield plans.ports[at].buffer
    if variant.status >= 0:
        yield variant.status


def params_bytes(row: Dispatch) -> int:
    """What a dispatch's parameters take up among those of all."""
    return -(-4 * len(row.params) // PARAMS_ALIGN) * PARAMS_ALIGN


def _misshapen(port: Port, live: Sequence[int]) -> InvalidInput:
    wanted = port.wanted[:500]
    return InvalidInput(f"input {port.name} must have shape {wanted}, got {list(live)}")


def _content(row: Constant) -> tuple[str, DType, Storage, tuple[int, ...]]:
    return row.data_key, row.dtype, row.storage, row.shape


def _shared_key(constant: planned.Constant) -> str:
    return content_name(
        constant.data_key, constant.dtype, constant.shape, constant.storage
    )
