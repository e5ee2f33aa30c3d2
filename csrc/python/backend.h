// The backend that ExecuTorch calls, and its registration.

#pragma once

namespace etwgpu {

// Puts the backend into the process-wide registry under kBackendId. Again is harmless;
// throws Failure if another library has the id.
void register_webgpu_backend();

// Whether the id in the registry is this backend's.
bool is_registered();

}  // namespace etwgpu
