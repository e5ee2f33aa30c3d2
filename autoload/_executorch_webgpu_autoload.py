"""Registers the backend when the ExecuTorch runtime is first imported.

A .pth file imports this module whenever the interpreter starts, so it imports
nothing itself. It adds one entry to sys.meta_path that finds nothing, ever: when
it is asked for a module that brings the runtime, it imports executorch_webgpu
first and lets the usual finders do their work. A failure becomes a warning.
ET_WEBGPU_AUTOLOAD=0 switches it off.
"""

import os
import sys

# The native modules that carry the runtime.
_RUNTIMES = frozenset(
    {
        "executorch.extension.pybindings._C",
        "executorch.extension.llm.runner._llm_runner",
        "executorch.extension.training.pybindings._training_lib",
    }
)


class _Trigger:
    """A finder that finds nothing and notices the runtime's import."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name in _RUNTIMES and "executorch_webgpu" not in sys.modules:
            _register()


def _register() -> None:
    try:
        import executorch_webgpu  # noqa: F401, registers on import
    except Exception as error:
        # `import executorch` must work whatever is wrong with this package.
        import warnings

        warnings.warn(
            f"executorch_webgpu: the backend is not registered: {error}",
            RuntimeWarning,
            stacklevel=2,
        )


def _is_wanted() -> bool:
    # Read here and not in executorch_webgpu.options, because the package must
    # not be imported when the interpreter starts.
    return os.environ.get("ET_WEBGPU_AUTOLOAD", "1") != "0"


if _is_wanted():
    sys.meta_path.insert(0, _Trigger)  # type: ignore[arg-type]
