"""What the package makes of plans that a file carries, and what the player does.

Both read, check and choose by themselves: in Python here, in C++ in `plan_fuzz.cpp`,
which has sanitizers. Neither may be laxer than the other, so that the verdict, the
profile for a device, the variant for live shapes and all registers must be the same.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from executorch_webgpu.errors import InvalidBlob, WebGPUError
from executorch_webgpu.ir import serialize as graph_file
from executorch_webgpu.ir import symbols
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.live_shapes import Live
from executorch_webgpu.portable import serialize
from executorch_webgpu.portable.at_sizes import FilePlanner, fitting_profile
from executorch_webgpu.portable.plans import Plans
from executorch_webgpu.portable.verify import verify

from .mutate import Mutant
from .programs import ROOT

Set = tuple[Live, ...]

DEVICES = (
    replace(AOT_CAPS, f16=True, subgroups=True, max_buffer=1 << 32),
    replace(AOT_CAPS, f16=False, offset_align=32),
    replace(AOT_CAPS, f16=True, is_cpu=True),
)
_CAPS = (
    *("is_cpu", "f16", "subgroups", "max_storage_buffers", "max_binding", "max_buffer"),
    *("max_workgroups", "max_invocations", "workgroup_memory", "offset_align"),
)
# What ends a process whose reader has gone too far.
_SANITIZERS = {
    "ASAN_OPTIONS": "allocator_may_return_null=0:max_allocation_size_mb=2048",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def read(blob: bytes) -> Plans:
    """The plans of a delegate's bytes; InvalidBlob if there are none or they are
    unsound."""
    section = serialize.section(blob)
    if section is None:
        raise InvalidBlob("delegate must carry plans, got none")
    plans = serialize.read(section)
    verify(plans)
    return plans


def live_sets(blob: bytes) -> tuple[Set, ...]:
    """Inputs of an honest delegate: at the ends of all ranges, in their middle, beyond
    them, of other extents, and one too few."""
    graph = graph_file.read(blob)
    inputs = [graph.values[index] for index in graph.inputs]

    def at(pick: Callable[[int, int], int]) -> Set:
        env = {name: pick(*ends) for name, ends in graph.symbols.items()}
        return tuple(
            symbols.evaluate(value.symbol, env)
            if value.is_int
            else tuple(symbols.evaluate(dim, env) for dim in value.shape)
            for value in inputs
        )

    middle = at(lambda low, high: (low + high) // 2)
    return (
        middle,
        at(min),
        at(max),
        at(lambda low, high: high + 1),
        tuple(x + 1 if isinstance(x, int) else (*x[:-1], 3) for x in middle),
        middle[1:],
    )


def verdict(plans: Plans, sets: Iterable[Set]) -> str:
    """A line as `plan_fuzz.cpp` has it, for plans that are sound."""
    line = "ok"
    for caps in DEVICES:
        planner: FilePlanner | None = None

        def choose() -> str:
            nonlocal planner
            profile = fitting_profile(plans, caps)  # noqa: B023  called at once
            planner = FilePlanner(plans, profile)
            return str(_place(profile, plans.profiles))

        line += _answered(choose)
        if planner is not None:
            _answered(lambda by=planner: f"{len(by.upper_bound().params)}")
            planner.pipelines()
            for inputs in sets:
                line += _answered(lambda one=inputs, by=planner: _chosen(by, one))
    return line


def _chosen(planner: FilePlanner, inputs: Set) -> str:
    registers = planner.registers(inputs)
    variant = planner.variant(registers)
    # What depends on more than registers may still be refused, with a sentence.
    _answered(lambda: f"{len(planner.plan(inputs).params)}")
    packed = struct.pack(f"<{len(registers)}q", *registers)
    return f"{_place(variant, planner.profile.variants)}:{zlib.crc32(packed)}"


def _answered(answer: Callable[[], str]) -> str:
    try:
        return f" {answer()}"
    except WebGPUError as error:
        if not 8 < len(str(error)) < 4000:
            raise AssertionError("an error must have a sentence") from error
        return " -"


def _place(item: object, items: Sequence[object]) -> int:
    return next(at for at, each in enumerate(items) if each is item)


# -- the player ----------------------------------------------------------------------


def build() -> Path:
    """plan_fuzz.cpp, built where the shim is."""
    sys.path.insert(0, str(ROOT))
    import setup

    with setup.build_directory(editable=True) as folder:
        command = [setup.tool("cmake"), "--build", folder, "--target", "plan_fuzz"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return folder / "plan_fuzz"


def player_verdicts(
    program: Path, items: Sequence[tuple[bytes, bytes]]
) -> tuple[list[str], str]:
    """Its answers, and what its sanitizers have said: of many that were to be answered,
    the one after the last answer is what it said that of."""
    blocks = b"".join(
        struct.pack("<I", len(block)) + block for item in items for block in item
    )
    done = subprocess.run(
        [program], input=blocks, capture_output=True, env={**os.environ, **_SANITIZERS}
    )
    lines = done.stdout.decode(errors="replace").splitlines()
    report = done.stderr.decode(errors="replace")
    if done.returncode and not report:
        report = f"exit status {done.returncode}"
    return lines, report


def differences(
    player: Path, mutants: Sequence[Mutant], sets: dict[str, tuple[Set, ...]]
) -> Iterator[tuple[int, str]]:
    """Where the two differ, or one has an accident: the number of the mutant, and what
    they say."""
    items = [(each.blob, packed(sets[each.program])) for each in mutants]
    done = 0
    while done < len(items):
        lines, report = player_verdicts(player, items[done:])
        for line in lines:
            ours = _package_verdict(items[done][0], sets[mutants[done].program])
            theirs = "refused" if line.startswith("refused 48 ") else line
            is_refused = ours.startswith("refused: ") and theirs == "refused"
            if not is_refused and ours != theirs:
                yield done, f"package: {ours}\n player: {line}"
            done += 1
        if done < len(items):
            yield done, report or "no answer"
            done += 1


def _package_verdict(blob: bytes, sets: tuple[Set, ...]) -> str:
    try:
        return verdict(read(blob), sets)
    except InvalidBlob as error:
        return f"refused: {error}"
    except Exception as error:
        return f"accident: {error!r}"


def packed(sets: Iterable[Set]) -> bytes:
    """Devices and live inputs as `plan_fuzz.cpp` reads them."""
    numbers = [len(DEVICES)]
    for caps in DEVICES:
        numbers += [int(getattr(caps, name)) for name in _CAPS]
    for inputs in sets:
        numbers.append(len(inputs))
        for live in inputs:
            numbers += [-1, live] if isinstance(live, int) else [len(live), *live]
    return struct.pack(f"<{len(numbers)}q", *numbers)
