"""Measurements of kernel forms in a JSON file that processes share.

    {"format": 1, "devices": {DEVICE: {CHOICE: {"best": FORM,
                                                "microseconds": {FORM: TIME}}}}}

A file that is damaged or of another format is reported and replaced. One that cannot be
written is reported once, and measurements then last as long as the process.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import InvalidInput

_logger = logging.getLogger("executorch_webgpu")

FORMAT = 1

_Devices = dict[str, dict[str, "Measured"]]


@dataclass(frozen=True)
class Measured:
    """The fastest form, and the time of each that was tried."""

    best: str
    microseconds: dict[str, float]


class TuningFile:
    """The entries of one device in a file."""

    def __init__(self, path: Path, device: str) -> None:
        self.path = path
        self.device = device
        self._found = _read_or_warn(path).get(device, {})
        self._is_writable = True

    def choices(self) -> dict[str, str]:
        return {key: measured.best for key, measured in self._found.items()}

    def add(self, key: str, measured: Measured) -> None:
        self._found[key] = measured
        if not self._is_writable:
            return
        # Read again, to keep what other processes have added since.
        devices = _read_or_warn(self.path)
        devices.setdefault(self.device, {}).update(self._found)
        try:
            write(self.path, devices)
        except OSError as error:
            self._is_writable = False
            _logger.warning("tuning file %s cannot be written: %s", self.path, error)


def read(path: Path) -> _Devices:
    """What is in a file; nothing if there is none, InvalidInput if it is damaged."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"tuning file {path} must be readable, got {error}"
        ) from None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"tuning file {path} must be JSON, got {error}") from None
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise InvalidInput(
            f"tuning file {path} must have format {FORMAT}, got {found!r}"
        )
    try:
        return {
            device: {key: _measured(entry) for key, entry in entries.items()}
            for device, entries in content["devices"].items()
        }
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"tuning file {path} must list measurements, got {error!r}"
        ) from None


def write(path: Path, devices: _Devices) -> None:
    """Replaces the file atomically: other processes may be reading it."""
    plain = {d: {k: asdict(m) for k, m in e.items()} for d, e in devices.items()}
    text = json.dumps({"format": FORMAT, "devices": plain}, indent=1, sort_keys=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, scratch = tempfile.mkstemp(dir=path.parent, prefix=".tuning-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(scratch, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        raise


def merge(path: Path, more: Path) -> int:
    """Adds the measurements of another file; returns how many it has."""
    if not more.exists():
        raise InvalidInput(f"tuning file {more} must exist")
    devices, added = read(path), read(more)
    for device, entries in added.items():
        devices.setdefault(device, {}).update(entries)
    write(path, devices)
    return sum(len(entries) for entries in added.values())


def _read_or_warn(path: Path) -> _Devices:
    try:
        return read(path)
    except InvalidInput as error:
        _logger.warning("%s; it is made anew", error)
        return {}


def _measured(entry: Any) -> Measured:
    best, times = entry["best"], entry["microseconds"]
    if not isinstance(best, str):
        raise TypeError(f"best must be a form, got {best!r}")
    return Measured(best, {str(name): float(value) for name, value in times.items()})
