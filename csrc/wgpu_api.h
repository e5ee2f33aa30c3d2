// The functions of libwgpu_native that a replay needs.
//
// They are looked up in the library that wgpu-py has loaded, never in a second
// copy: the handles a replay uses were made there.

#pragma once

#include <wgpu.h>

#include <cstdint>
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
  X(wgpuDeviceCreateCommandEncoder)           \
  X(wgpuDevicePoll)                           \
  X(wgpuDevicePopErrorScope)                  \
  X(wgpuDevicePushErrorScope)                 \
  X(wgpuQueueSubmitForIndex)                  \
  X(wgpuQueueWriteBuffer)

struct WgpuApi {
#define ETWGPU_DECLARE(name) decltype(&::name) name = nullptr;
  ETWGPU_FUNCTIONS(ETWGPU_DECLARE)
#undef ETWGPU_DECLARE
};

// Finds the functions in the loaded library at `path`. Returns "" and makes
// `wgpu()` usable, or returns why the replay cannot run with that library.
std::string bind_wgpu(const std::string& path);

// wgpu's text as a string.
std::string text_of(WGPUStringView view);

// Only after bind_wgpu() has returned "".
const WgpuApi& wgpu();

}  // namespace etwgpu
