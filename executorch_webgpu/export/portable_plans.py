"""Adds plans to a delegate's bytes, and says what they do not serve."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from .. import ir
from ..errors import Unsupported
from ..portable import collect, serialize
from ..portable.profiles import profiles_for
from ..portable.verify import verify

_log = logging.getLogger("executorch_webgpu")

# Sizes that are named of those which are not served.
_NAMED = 3


@dataclass
class Added:
    """Bytes with plans, the data that these need beside the graph's, and what they do
    not serve, a line each."""

    blob: bytes
    data: dict[str, torch.Tensor] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def add(
    blob: bytes,
    graph: ir.Graph,
    tensors: Mapping[str, torch.Tensor],
    f16_accumulate: bool,
) -> Added:
    """A delegate's bytes with plans for all kinds of devices; without, and with the
    reason, if a player could not use them."""

    def data_of(key: str) -> np.ndarray:
        data: np.ndarray = tensors[key].reshape(-1).view(torch.uint8).numpy()
        return data

    try:
        made = collect.collect(graph, profiles_for(graph, f16_accumulate), data_of)
    except Unsupported as error:
        return Added(blob, problems=[f"not portable: {error}"])
    verify(made.plans)  # what is written here can be loaded
    problems = []
    for name, refused in made.refused.items():
        some = "; ".join(
            f"{dict(each.sizes)}: {each.reason}" for each in refused[:_NAMED]
        )
        if refused:
            more = len(refused) - _NAMED
            rest = f", and {more} more" if more > 0 else ""
            problems.append(f"not portable with {name} for sizes {some}{rest}")
    data = {key: torch.from_numpy(data) for key, data in made.data.items()}
    return Added(serialize.append(blob, made.plans), data, problems)


def warn(problems: Sequence[str]) -> None:
    """Nothing that will not run is passed over in silence."""
    for problem in problems:
        _log.warning("%s", problem)
