// The backend that ExecuTorch calls, and its registration.

#pragma once

namespace etwgpu {

// Puts the backend into the process-wide registry under kBackendId. Again is harmless;
// throws Failure if another library has the id.
void register_webgpu_backend();

// Does the same for files made for ExecuTorch's Vulkan backend, under kVulkanId, and
// says whether the id is this library's: where another one has it, nothing changes.
bool register_vulkan_backend();

// Whether the id in the registry is this backend's.
bool is_registered();

}  // namespace etwgpu
