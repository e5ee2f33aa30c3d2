"""Shader modules without the counters that wgpu adds to loops.

Enters: the text of a kernel of this package. Leaves: wgpu-py's GPUShaderModule.

wgpu ends every loop after 2^64 rounds, which it counts, because a driver's compiler may
take a loop without end, and the checks behind it, for code that is never reached. With
a counter drivers do not unroll a loop, so that one of its loads is in flight at a time.
Our loops end by themselves, whatever a file says (docs/security.md), and have no
counter. Every index is still confined to its buffer or array by wgpu.

This uses parts of wgpu-py that are not documented. Where they may differ from those of
the version below, modules have all checks.
"""

from __future__ import annotations

import functools
from typing import Any

_KNOWN_WGPU = (0, 32)
_FUNCTION = "wgpuDeviceCreateShaderModuleTrusted"


@functools.cache
def can_omit_counters() -> bool:
    """Whether this wgpu can make modules without counters."""
    import wgpu
    from wgpu.backends.wgpu_native import _api

    return wgpu.version_info[:2] == _KNOWN_WGPU and hasattr(_api.libf, _FUNCTION)


def create_shader_module(device: Any, label: str, code: str, is_checked: bool) -> Any:
    """A module of a wgpu-py device; with `is_checked`, loops are counted too."""
    if is_checked or not can_omit_counters():
        return device.create_shader_module(label=label, code=code)
    from wgpu.backends.wgpu_native import _api

    source = _api.new_struct_p(
        "WGPUShaderSourceWGSL *", code=_api.to_c_string_view(code)
    )
    source.chain.sType = _api.lib.WGPUSType_ShaderSourceWGSL
    descriptor = _api.new_struct_p(
        "WGPUShaderModuleDescriptor *",
        # No reference to `source`, which has to live until the call below.
        nextInChain=_api.ffi.cast("WGPUChainedStruct *", source),
        label=_api.to_c_string_view(label),
    )
    create = getattr(_api.libf, _FUNCTION)
    checks = _api.lib.WGPUShaderRuntimeChecks_BoundsChecks
    module = create(device._internal, descriptor, checks)
    return _api.GPUShaderModule(label, module, device)
