"""The package's exceptions, each with the ExecuTorch error code it becomes.

The shim reads `code`, the name of a member of `executorch::runtime::Error`, from any
exception that leaves the Python side; an exception without one is `Internal`.
"""

from __future__ import annotations

# Of a value in a message: an argument in a file may be a list of many numbers.
_MOST_SHOWN = 500


def shown(value: object) -> str:
    """A value as a message has it: not longer than a reader takes in."""
    text = str(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


class WebGPUError(Exception):
    """Anything this package reports on purpose."""

    code = "Internal"


class Unsupported(WebGPUError):
    """An op cannot run on the GPU as asked; the text is the requirement it fails."""

    code = "NotSupported"


class InvalidBlob(WebGPUError):
    """The delegate's bytes are damaged, or from a newer version."""

    code = "DelegateInvalidCompatibility"


class MissingData(WebGPUError):
    """Named data is absent or has the wrong size."""

    code = "NotFound"


class NoAdapter(WebGPUError):
    """There is no GPU adapter, not even a software one."""

    code = "DelegateInvalidHandle"


class LimitExceeded(WebGPUError):
    """The model needs more than the adapter allows."""

    code = "MemoryAllocationFailed"


class UnfitDevice(WebGPUError):
    """The device has not what any of the file's plans was made for."""

    code = "NotSupported"


class InvalidInput(WebGPUError):
    """A shape, value or option at run time that is outside what is allowed."""

    code = "InvalidArgument"


class DeviceError(WebGPUError):
    """The GPU or its driver reported an error."""

    code = "DelegateInvalidHandle"
