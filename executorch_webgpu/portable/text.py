"""Plans of a file as a person reads them: expressions instead of registers."""

from __future__ import annotations

from collections.abc import Iterator

from ..plan import guards
from ..plan.size_code import Instruction, SizeCode
from .plans import Dispatch, Plans, Port, Profile, Variant


def lines(plans: Plans) -> Iterator[str]:
    """What the file carries, profile by profile and variant by variant."""
    yield f"plans, written by {plans.writer}"
    for symbol in plans.symbols:
        place = f"input {symbol.input}"
        place += f" dimension {symbol.dim}" if symbol.dim >= 0 else ""
        yield f"{symbol.name} in [{symbol.low}, {symbol.high}]: {place}"
    names = _Names(plans)
    for profile in plans.profiles:
        yield f"profile {profile.name}: {_asked(profile)}"
        for number, variant in enumerate(profile.variants, 1):
            yield f"variant {number} of {len(profile.variants)}, if"
            yield f"  {names.guards(variant)}"
            yield from names.variant(variant)


def _asked(profile: Profile) -> str:
    named = {"is_cpu": "a CPU adapter", "f16": "f16", "subgroups": "subgroups"}
    features = [text for name, text in named.items() if getattr(profile, name)]
    limits = [
        f"{profile.max_storage_buffers} storage buffers",
        f"{profile.workgroup_memory >> 10} KiB of workgroup memory",
        f"{profile.max_invocations} invocations",
    ]
    return ", ".join([*features, *limits])


class _Names:
    """Registers as expressions over the symbols."""

    def __init__(self, plans: Plans) -> None:
        self._plans = plans
        self._code = SizeCode(symbol.name for symbol in plans.symbols)
        # Not simplified: what is shown is what is in the file.
        made = [*self._code.symbols.values()]
        made += [self._code.number(number) for number in plans.literals]
        for name, left, right in plans.code:
            made.append(self._code.add(Instruction(name, made[left], made[right])))
        self._registers = made

    def text(self, register: int) -> str:
        return self._code.text(self._registers[register])

    def guards(self, variant: Variant) -> str:
        texts = [
            guards.text(
                self._code, self._registers[each.register], (each.low, each.high)
            )
            for each in variant.guards
        ]
        return " and ".join(texts) or "always"

    def variant(self, variant: Variant) -> Iterator[str]:
        for title, rows in (("in", variant.inputs), ("out", variant.outputs)):
            for port in (self._plans.ports[at] for at in rows):
                yield f"  {title:<3} {self._port(port)}"
        for number, at in enumerate(variant.dispatches):
            yield f"  {number:>4} {self._dispatch(self._plans.dispatches[at])}"

    def _port(self, port: Port) -> str:
        shape = ", ".join(map(self.text, port.shape))
        kind = "int" if port.is_int else f"{port.dtype.label} [{shape}]"
        return f"{port.name}: {kind} b{port.buffer}"

    def _dispatch(self, row: Dispatch) -> str:
        grid = " x ".join(map(self.text, row.groups))
        kernel = self._plans.kernels[row.kernel].label
        buffers = " ".join(f"b{index}" for index in row.buffers)
        return f"{row.label:<36} {kernel} [{grid}] {buffers}"
