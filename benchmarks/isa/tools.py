"""What the measurement needs of the machine: headers, a compiler, RADV, the layer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

LAYER = "VK_LAYER_ISA_capture"
_HERE = Path(__file__).resolve().parent
_HEADER = Path("vulkan/vk_layer.h")
_INCLUDES = (Path("/usr/include"), Path("/usr/local/include"))
_DRIVERS = (Path("/usr/share/vulkan/icd.d"), Path("/etc/vulkan/icd.d"))


class Missing(Exception):
    """What has to be installed before anything can be measured."""


def check() -> None:
    """Raises Missing with everything that is not there."""
    wanted = []
    if not shutil.which("cc"):
        wanted.append("a C compiler (apt install g++)")
    if not any((folder / _HEADER).exists() for folder in _INCLUDES):
        wanted.append(f"{_HEADER} (apt install libvulkan-dev)")
    if radv() is None:
        wanted.append("Mesa's RADV (apt install mesa-vulkan-drivers)")
    if wanted:
        raise Missing(
            f"isa: needs {' and '.join(wanted)}; no machine code was looked at"
        )


def radv() -> Path | None:
    """The file that tells the Vulkan loader of RADV."""
    found = [path for folder in _DRIVERS for path in folder.glob("radeon_icd*.json")]
    return min(found, default=None)


def build_layer(folder: Path) -> None:
    """Leaves the layer and its manifest in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "layer.so"
    command = ["cc", "-O1", "-shared", "-fPIC", "-fvisibility=hidden"]
    subprocess.run([*command, str(_HERE / "layer.c"), "-o", str(library)], check=True)
    manifest = {
        "file_format_version": "1.1.2",
        "layer": {
            "name": LAYER,
            "type": "GLOBAL",
            "library_path": str(library.resolve()),
            "api_version": "1.3.0",
            "implementation_version": "1",
            "description": "writes compute pipelines and dispatches of a null device",
            "functions": {
                "vkGetInstanceProcAddr": "isa_GetInstanceProcAddr",
                "vkGetDeviceProcAddr": "isa_GetDeviceProcAddr",
            },
        },
    }
    (folder / "layer.json").write_text(json.dumps(manifest))


def environment(target: str, layer: Path, output: Path) -> Mapping[str, str]:
    """For a process whose Vulkan device is to be RADV's null device of a target."""
    return {
        **os.environ,
        "RADV_FORCE_FAMILY": target,
        "VK_ICD_FILENAMES": str(radv()),
        "VK_LAYER_PATH": str(layer.resolve()),
        "VK_INSTANCE_LAYERS": LAYER,
        # A kernel from the cache comes without its assembly.
        "MESA_SHADER_CACHE_DISABLE": "1",
        "ISA_OUT": str(output.resolve()),
    }
