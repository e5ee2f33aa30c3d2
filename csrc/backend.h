// The delegate ABI: what ExecuTorch calls.

#pragma once

namespace etwgpu {

// Registers WebGPUBackend in the process-wide registry. Again is harmless; an
// id that belongs to someone else throws Failure.
void register_webgpu_backend();

bool is_registered();

}  // namespace etwgpu
