"""Register tiles on CPU adapters: WGSL for rows that neighbouring lanes share.

A software driver loads lane by lane, so time is in loads. Where a subgroup is as
wide as the driver's vector, each lane loads a different part of the operand that
all lanes need, and a shuffle, one instruction, hands it round: the operand is
loaded once per subgroup instead of once per lane.
"""

from __future__ import annotations

import re

from ..device import Caps


def lanes(caps: Caps) -> int:
    """Invocations that can share loads by shuffles; 1 where that is not known.

    llvmpipe's subgroup is its vector, whose width it tells in its name.
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
    one invocation where lanes share nothing."""
    if count == 1:
        return (
            "fn lane_of(local: u32) -> i32 { return 0; }\n"
            "fn tile_of(group: i32, local: u32) -> i32"
            " { return group * WG + i32(local); }"
        )
    return (
        "fn lane_of(local: u32) -> i32 { return i32(local); }\n"
        "fn tile_of(group: i32, local: u32) -> i32 { return group; }"
    )


def workgroup(count: int) -> int:
    return count if count > 1 else 32
