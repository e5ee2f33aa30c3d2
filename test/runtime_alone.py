"""ExecuTorch's runtime without its exporter, for a process that imports this first and
only loads and executes. ExecuTorch's bindings take a decorator from `executorch.exir`,
and with it all of torch.export, which takes twice as long to import as the rest."""

from __future__ import annotations

import importlib.util
import sys
import types

_parent = importlib.util.find_spec("executorch")
assert _parent is not None
assert "executorch.exir" not in sys.modules
_package = types.ModuleType("executorch.exir")
# Its modules are found; its own code, which imports most of them, is not run.
_package.__path__ = [
    f"{place}/exir" for place in _parent.submodule_search_locations or ()
]
sys.modules["executorch.exir"] = _package
