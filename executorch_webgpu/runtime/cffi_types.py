"""Makes cffi parse wgpu-py's C types with few declarations instead of all.

wgpu-py names C types by text (`ffi.new("WGPUBufferDescriptor *")`). When cffi meets a
text for the first time, it parses it behind a typedef for every name that the header
declares, some 440. That takes 20 ms for each of the 35 texts that loading a program
needs, most of the time to a first result. Only names that occur in a text can matter,
so here it is parsed behind typedefs for those alone; wgpu-py's own parser still decides
what the parsed text means.

This uses attributes of cffi that are not documented. If they differ from those of cffi
1 and 2, nothing is changed.
"""

from __future__ import annotations

import re
from typing import Any

# How cffi wraps the text of a type to parse it.
_TYPE = "void __dummy("
_WORD = re.compile(r"\w+")


def quicken(ffi: Any) -> bool:
    """Makes a cffi.FFI parse new types faster, once; returns whether it could."""
    parser: Any = getattr(ffi, "_parser", None)
    if not _is_known(parser):
        return False
    if "_parse" not in vars(parser):
        parser._parse = _Quick(parser)
    return True


def _is_known(parser: Any) -> bool:
    """Whether a parser has the attributes that `_Quick` relies on."""
    if not isinstance(getattr(parser, "_declarations", None), dict):
        return False
    if not callable(getattr(parser, "_parse", None)):
        return False
    try:
        fresh = type(parser)()
    except TypeError:
        return False
    return getattr(fresh, "_declarations", None) == {}


class _Quick:
    """`Parser._parse` of one parser, with only the names that a text mentions."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self._parse = parser._parse

    def __call__(self, source: str) -> Any:
        if not source.startswith(_TYPE):
            return self._parse(source)
        known = self._parser._declarations
        names = {f"typedef {word}" for word in _WORD.findall(source)} & known.keys()
        # A parser of its own, because other threads may be reading the declarations.
        few = type(self._parser)()
        few._declarations = {name: known[name] for name in names}
        return few._parse(source)
