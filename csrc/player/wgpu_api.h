// The functions of libwgpu_native that a replay calls.
//
// They are looked up in the library that wgpu-py has loaded, never in a second copy,
// because the handles that a replay uses come from there.

#pragma once

#include <wgpu.h>

#include <string>

namespace etwgpu {

#define ETWGPU_FUNCTIONS(X)                   \
  X(wgpuGetVersion)                           \
  X(wgpuBufferGetConstMappedRange)            \
  X(wgpuBufferGetMappedRange)                 \
  X(wgpuBufferGetSize)                        \
  X(wgpuBufferMapAsync)                       \
  X(wgpuBufferUnmap)                          \
  X(wgpuCommandBufferRelease)                 \
  X(wgpuCommandEncoderBeginComputePass)       \
  X(wgpuCommandEncoderClearBuffer)            \
  X(wgpuCommandEncoderCopyBufferToBuffer)     \
  X(wgpuCommandEncoderFinish)                 \
  X(wgpuCommandEncoderRelease)                \
  X(wgpuComputePassEncoderDispatchWorkgroups) \
  X(wgpuComputePassEncoderEnd)                \
  X(wgpuComputePassEncoderRelease)            \
  X(wgpuComputePassEncoderSetBindGroup)       \
  X(wgpuComputePassEncoderSetPipeline)        \
  X(wgpuDeviceAddRef)                         \
  X(wgpuDeviceCreateCommandEncoder)           \
  X(wgpuDevicePoll)                           \
  X(wgpuDevicePopErrorScope)                  \
  X(wgpuDevicePushErrorScope)                 \
  X(wgpuDeviceRelease)                        \
  X(wgpuQueueAddRef)                          \
  X(wgpuQueueRelease)                         \
  X(wgpuQueueSubmitForIndex)                  \
  X(wgpuQueueWriteBuffer)

struct WgpuApi {
#define ETWGPU_DECLARE(name) decltype(&::name) name = nullptr;
  ETWGPU_FUNCTIONS(ETWGPU_DECLARE)
#undef ETWGPU_DECLARE
};

// Looks the functions up in the loaded library at `path`. Returns "" if `wgpu()` is
// usable now, else why replays cannot use that library.
std::string bind_wgpu(const std::string& path);

// Only after bind_wgpu() has returned "".
const WgpuApi& wgpu();

std::string text_of(WGPUStringView view);

}  // namespace etwgpu
