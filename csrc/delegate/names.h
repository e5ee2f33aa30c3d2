// The backend's name.

#pragma once

namespace etwgpu {

// The id in ExecuTorch's registry and in every .pte, and the prefix of log lines.
// Python has it as _shim.BACKEND_ID; the class in export/backend.py is named so.
inline constexpr const char kBackendId[] = "WebGPUBackend";

}  // namespace etwgpu
