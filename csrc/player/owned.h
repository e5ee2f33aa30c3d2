// GPU objects that this code made, released when the last owner goes.

#pragma once

#include "player/wgpu_api.h"

#include <utility>

namespace etwgpu {

template <typename Handle, auto Release>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  ~Owned() { reset(); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  const Handle& get() const { return handle_; }

 private:
  void reset() {
    if (handle_ != nullptr) {
      (wgpu().*Release)(handle_);
    }
  }

  Handle handle_ = nullptr;
};

using OwnAdapter = Owned<WGPUAdapter, &WgpuApi::wgpuAdapterRelease>;
using OwnBindGroup = Owned<WGPUBindGroup, &WgpuApi::wgpuBindGroupRelease>;
using OwnBuffer = Owned<WGPUBuffer, &WgpuApi::wgpuBufferRelease>;
using OwnCommands = Owned<WGPUCommandBuffer, &WgpuApi::wgpuCommandBufferRelease>;
using OwnDevice = Owned<WGPUDevice, &WgpuApi::wgpuDeviceRelease>;
using OwnEncoder = Owned<WGPUCommandEncoder, &WgpuApi::wgpuCommandEncoderRelease>;
using OwnGroupLayout = Owned<WGPUBindGroupLayout, &WgpuApi::wgpuBindGroupLayoutRelease>;
using OwnModule = Owned<WGPUShaderModule, &WgpuApi::wgpuShaderModuleRelease>;
using OwnPass = Owned<WGPUComputePassEncoder, &WgpuApi::wgpuComputePassEncoderRelease>;
using OwnPipeline = Owned<WGPUComputePipeline, &WgpuApi::wgpuComputePipelineRelease>;
using OwnPipelineLayout =
    Owned<WGPUPipelineLayout, &WgpuApi::wgpuPipelineLayoutRelease>;
using OwnQueue = Owned<WGPUQueue, &WgpuApi::wgpuQueueRelease>;

}  // namespace etwgpu
