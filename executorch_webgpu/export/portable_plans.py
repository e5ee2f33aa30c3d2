"""A delegate's bytes with plans, and what these do not serve."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .. import ir
from ..errors import Unsupported
from ..ir import serialize as ir_serialize
from ..plan.load_graph import check_graph
from ..portable import collect, serialize
from ..portable.profiles import profiles_for
from ..portable.stored_constants import laid_out, with_parts
from ..portable.verify import verify

_log = logging.getLogger("executorch_webgpu")

# Sizes that are named of those which are not served.
_NAMED = 3


@dataclass
class Portable:
    """A delegate's bytes, the named data that it needs, and what its plans do not
    serve, a line each."""

    blob: bytes
    data: dict[str, torch.Tensor]
    problems: list[str]


def portable(
    graph: ir.Graph, tensors: Mapping[str, torch.Tensor], f16_accumulate: bool
) -> Portable:
    """A graph as bytes, with plans for all kinds of devices; without, and with the
    reason, if a player could not use them."""

    def data_of(key: str) -> np.ndarray:
        data: np.ndarray = tensors[key].reshape(-1).view(torch.uint8).numpy()
        return data

    try:
        made = collect.collect(graph, profiles_for(graph, f16_accumulate), data_of)
    except Unsupported as error:
        blob = ir_serialize.write(graph)
        return Portable(blob, dict(tensors), [f"not portable: {error}"])

    def bytes_of(key: str) -> memoryview:
        return (made.data[key] if key in made.data else data_of(key)).data

    parts = laid_out(graph, made.parts, bytes_of)
    graph, plans = with_parts(graph, made.plans, parts)
    check_graph(graph)  # what is written here can be loaded
    verify(plans)
    problems = []
    for name, refused in made.refused.items():
        some = "; ".join(
            f"{dict(each.sizes)}: {each.reason}" for each in refused[:_NAMED]
        )
        if refused:
            more = len(refused) - _NAMED
            rest = f", and {more} more" if more > 0 else ""
            problems.append(f"not portable with {name} for sizes {some}{rest}")
    used = {value.data_key for value in graph.values}
    data = {key: tensor for key, tensor in tensors.items() if key in used}
    data |= {key: torch.from_numpy(each) for key, each in made.data.items()}
    blob = serialize.append(ir_serialize.write(graph), plans)
    return Portable(blob, data, problems)


def warn(problems: Sequence[str]) -> None:
    """Nothing that will not run is passed over in silence."""
    for problem in problems:
        _log.warning("%s", problem)
