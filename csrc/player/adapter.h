// The adapters of this machine, and which one is taken.

#pragma once

#include "player/owned.h"
#include "player/wgpu_api.h"

#include <string>

namespace etwgpu {

struct Adapter {
  OwnAdapter handle;
  std::string name;  // the device, its kind and the API, as wgpu-py has it
  WGPUAdapterType type = WGPUAdapterType_Unknown;
  WGPUBackendType backend = WGPUBackendType_Undefined;
};

// The process's instance, made by the first call and never released: drivers do not
// survive being opened again and again.
WGPUInstance instance();

// The best adapter whose name has `part` in it, whatever the case: Vulkan, Metal and
// D3D12 before others, discrete GPUs before integrated ones before CPUs. Throws Failure
// if there is none.
Adapter choose_adapter(const std::string& part);

}  // namespace etwgpu
