// The functions of webgpu.h that the player calls.
//
// They come from a table, because it is known only at run time which library has them:
// one that is loaded already, in which the handles were made, or one that is opened.

#pragma once

#include <wgpu.h>

#include <string>

namespace etwgpu {

#define ETWGPU_FUNCTIONS(X)                   \
  X(wgpuAdapterGetInfo)                       \
  X(wgpuAdapterGetLimits)                     \
  X(wgpuAdapterHasFeature)                    \
  X(wgpuAdapterInfoFreeMembers)               \
  X(wgpuAdapterRelease)                       \
  X(wgpuAdapterRequestDevice)                 \
  X(wgpuBindGroupLayoutRelease)               \
  X(wgpuBindGroupRelease)                     \
  X(wgpuBufferDestroy)                        \
  X(wgpuBufferGetConstMappedRange)            \
  X(wgpuBufferGetMappedRange)                 \
  X(wgpuBufferGetSize)                        \
  X(wgpuBufferMapAsync)                       \
  X(wgpuBufferRelease)                        \
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
  X(wgpuComputePipelineRelease)               \
  X(wgpuCreateInstance)                       \
  X(wgpuDeviceAddRef)                         \
  X(wgpuDeviceCreateBindGroup)                \
  X(wgpuDeviceCreateBindGroupLayout)          \
  X(wgpuDeviceCreateBuffer)                   \
  X(wgpuDeviceCreateCommandEncoder)           \
  X(wgpuDeviceCreateComputePipeline)          \
  X(wgpuDeviceCreatePipelineLayout)           \
  X(wgpuDeviceCreateShaderModule)             \
  X(wgpuDeviceDestroy)                        \
  X(wgpuDeviceGetQueue)                       \
  X(wgpuDevicePopErrorScope)                  \
  X(wgpuDevicePushErrorScope)                 \
  X(wgpuDeviceRelease)                        \
  X(wgpuInstanceProcessEvents)                \
  X(wgpuInstanceRequestAdapter)               \
  X(wgpuPipelineLayoutRelease)                \
  X(wgpuQueueAddRef)                          \
  X(wgpuQueueOnSubmittedWorkDone)             \
  X(wgpuQueueRelease)                         \
  X(wgpuQueueSubmit)                          \
  X(wgpuQueueWriteBuffer)                     \
  X(wgpuShaderModuleRelease)

// Those of wgpu-native alone; null elsewhere.
#define ETWGPU_NATIVE_FUNCTIONS(X)       \
  X(wgpuDeviceCreateShaderModuleTrusted) \
  X(wgpuDevicePoll)                      \
  X(wgpuGetVersion)                      \
  X(wgpuInstanceEnumerateAdapters)       \
  X(wgpuQueueSubmitForIndex)

struct WgpuApi {
#define ETWGPU_DECLARE(name) decltype(&::name) name = nullptr;
  ETWGPU_FUNCTIONS(ETWGPU_DECLARE)
  ETWGPU_NATIVE_FUNCTIONS(ETWGPU_DECLARE)
#undef ETWGPU_DECLARE
  bool is_native() const { return wgpuGetVersion != nullptr; }

  // Whether features have the numbers that they had in webgpu.h before there was
  // wgpuGetInstanceFeatures: one less each, as in Dawn of early 2025.
  bool has_early_features = false;
};

// Looks the functions up in the loaded wgpu-native at `path`. Returns "" if `wgpu()` is
// usable now, else why replays cannot use that library.
std::string bind_wgpu(const std::string& path);

// Looks them up, once, in what the process has loaded for all to see, or else in the
// library that ET_WEBGPU_LIBRARY names, or in a wgpu-native where one may be. Throws
// Failure if there is none that can be used.
void open_wgpu();

// Does without wgpu-native's own functions from now on, as with any other library; for
// tests, before a device is made.
void leave_native_out();

// Only after bind_wgpu() has returned "", or open_wgpu() has returned.
const WgpuApi& wgpu();

std::string text_of(WGPUStringView view);
WGPUStringView string_view(const std::string& text);

}  // namespace etwgpu
