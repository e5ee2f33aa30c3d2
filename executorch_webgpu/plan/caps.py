"""What a plan may assume of the adapter that will run it: plain numbers, no GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Caps:
    """What op functions may know of a device when they choose a kernel."""

    f16: bool
    subgroups: bool
    is_cpu: bool
    max_binding: int  # bytes of one storage binding
    max_buffer: int  # bytes of one buffer
    max_storage_buffers: int  # storage bindings of one kernel
    max_workgroups: int  # per grid dimension
    max_invocations: int  # per workgroup
    workgroup_memory: int  # bytes per workgroup
    offset_align: int  # bytes; a storage binding's offset is a multiple of it
    # Units that each run waves on their own (AMD's SIMDs). WebGPU does not tell, so it
    # is assumed by the kind of the device.
    simds: int
    name: str
    # Whether constants can be laid out anew at load, which a player without Python
    # cannot: then kernels for CPU adapters take them as those for GPUs do.
    packs: bool = True
    # Whether products of f16 may be summed in f16: the user's option, not the device's.
    f16_accumulate: bool = False


# Assumed where no device is known: what any browser offers, so that a program
# exported here loads there.
AOT_CAPS = Caps(
    f16=True,
    subgroups=False,
    is_cpu=False,
    max_binding=128 << 20,
    max_buffer=256 << 20,
    max_storage_buffers=8,
    max_workgroups=65535,
    max_invocations=256,
    workgroup_memory=16 << 10,
    offset_align=256,
    simds=64,
    name="aot",
)
