"""Register tiles on CPU adapters: WGSL for rows whose loads the lanes share.

A software driver loads lane by lane, so time is in loads. Where a subgroup is as wide
as the driver's vector, each lane loads different rows of the operand that all lanes
need, and a shuffle, one instruction, broadcasts each value: the operand is loaded once
per subgroup instead of once per lane.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...plan.caps import Caps


@dataclass(frozen=True)
class Rows:
    """The rows of a tile: row r is loaded by lane r % sharing, which loads `loads`."""

    count: int
    lanes: int

    @property
    def loads(self) -> int:
        return -(-self.count // self.lanes)

    @property
    def sharing(self) -> int:
        """Lanes that load different rows."""
        return min(self.count, self.lanes)

    @property
    def in_fours(self) -> bool:
        """Whether a lane can load its rows as vec4, if they are contiguous."""
        return self.loads % 4 == 0

    @property
    def lane(self) -> str:
        """The lane whose rows a lane loads: several may load the same."""
        few = self.lanes > self.count
        return f"min(lane, {self.sharing - 1})" if few else "lane"

    def load(self, name: str, at: str) -> tuple[list[str], list[str]]:
        """Statements that load a lane's rows from `at` on, and the loaded values."""
        if not self.in_fours:
            made = [f"{name}{q}" for q in range(self.loads)]
            lines = [f"let {v} = get_{name}({at} + {q});" for q, v in enumerate(made)]
            return lines, made
        lines = [
            f"let {name}{q} = get_{name}4((({at}) >> 2u) + {q});"
            for q in range(self.loads // 4)
        ]
        return lines, [f"{name}{q // 4}[{q % 4}]" for q in range(self.loads)]

    def products(self, loaded: Sequence[str], columns: str) -> list[str]:
        """Statements that add every row's value, from the lane that loaded it, times
        four columns to the tile."""
        lines = []
        for row in range(self.count):
            load, lane = divmod(row, self.sharing)
            value = shared(loaded[load], lane, self.lanes)
            lines.append(f"(*c)[{row}] += {value} * {columns};")
        return lines


def lanes(caps: Caps) -> int:
    """Lanes that can share loads by shuffles; 1 where that is not known.

    llvmpipe's subgroup is its vector, whose width is in the adapter's name.
    """
    width = re.search(r"llvmpipe .*?(\d+) bits", caps.name)
    if not (caps.is_cpu and caps.subgroups and width):
        return 1
    count = int(width[1]) // 32
    return count if count in (4, 8, 16) else 1


def shared(code: str, lane: int, count: int) -> str:
    """The value that `code` has in lane `lane` of `count`."""
    return code if count == 1 else f"subgroupShuffle({code}, {lane}u)"


def mapping(count: int) -> str:
    """lane_of and tile_of: a tile is a subgroup, which is a whole workgroup, or
    one invocation where lanes share nothing.

    Not chosen by a constant in WGSL: shuffles must be in uniform control flow, and
    Tint analyses both branches.
    """
    if count == 1:
        return (
            "fn lane_of(id: i32) -> i32 { return 0; }\n"
            "fn tile_of(group: i32, id: i32) -> i32 { return group * WG + id; }"
        )
    return (
        "fn lane_of(id: i32) -> i32 { return id; }\n"
        "fn tile_of(group: i32, id: i32) -> i32 { return group; }"
    )


def workgroup(count: int) -> int:
    return count if count > 1 else 32
