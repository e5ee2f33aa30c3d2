// The names of backends.

#pragma once

namespace etwgpu {

// The id in ExecuTorch's registry and in every .pte, and the prefix of log lines.
// Python has it as _shim.BACKEND_ID; the class in export/backend.py is named so.
inline constexpr const char kBackendId[] = "WebGPUBackend";

// The id in files that were made for ExecuTorch's own Vulkan backend, which the shim
// reads, too.
inline constexpr const char kVulkanId[] = "VulkanBackend";

}  // namespace etwgpu
