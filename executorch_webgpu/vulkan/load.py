"""A Vulkan delegate's bytes -> a graph that planning can trust, and its constants.

After the three steps, what `plan/load_graph.py` checks of any graph is checked of this
one, too: nothing behind it knows where a graph comes from.
"""

from __future__ import annotations

from .. import ir
from ..plan.load_graph import check_graph
from .blob import read
from .calls import translate
from .constants import ConstantData, GetData
from .infer import infer


def load(blob: memoryview | bytes, get_data: GetData) -> tuple[ir.Graph, ConstantData]:
    """The graph, and the bytes of its constants; InvalidBlob, MissingData or
    Unsupported if they are not what they must be."""
    draft = translate(read(blob), get_data)
    graph = infer(draft)
    check_graph(graph)
    return graph, draft.constants
