// The process's GPU device: what it can do, and what has been made on it for all.

#pragma once

#include "player/adapter.h"
#include "player/device_mutex.h"
#include "player/error_scope.h"
#include "player/events.h"
#include "player/failure.h"
#include "player/owned.h"
#include "player/plans.h"
#include "player/wgpu_api.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace etwgpu {

struct DeviceCaps {
  bool f16 = false;
  bool subgroups = false;
  bool is_cpu = false;  // it computes on the host's processor
  uint64_t max_binding = 0;
  uint64_t max_buffer = 0;
  uint32_t max_storage_buffers = 0;
  uint32_t max_workgroups = 0;
  uint32_t max_invocations = 0;
  uint32_t workgroup_memory = 0;
  uint32_t offset_align = 0;
};

// Bytes on the GPU; they are freed with it, whoever still refers to the handle.
class GpuBuffer {
 public:
  GpuBuffer(OwnBuffer handle, uint64_t size)
      : handle_(std::move(handle)), size_(size) {}
  ~GpuBuffer() { wgpu().wgpuBufferDestroy(handle_.get()); }
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;
  WGPUBuffer get() const { return handle_.get(); }
  uint64_t size() const { return size_; }

 private:
  OwnBuffer handle_;
  uint64_t size_;
};

// How kernels that access their bindings alike are given them.
struct Layout {
  OwnGroupLayout group;
  OwnPipelineLayout pipeline;
};

struct Pipeline {
  OwnPipeline handle;
  std::shared_ptr<const Layout> layout;
  size_t bindings = 0;
  mutable bool is_warm = false;  // whether it was dispatched, under the device's mutex
};

// Buffers that stand in for others.
using Spares = std::vector<std::shared_ptr<GpuBuffer>>;

// Used under its mutex, but for `get` and `check`.
class Device {
 public:
  // The device on the adapter that `part` chooses. All who ask for the same share it,
  // unless it is lost, until the last of them lets go.
  static std::shared_ptr<Device> get(const std::string& part);

  explicit Device(Adapter adapter);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return adapter_.name; }
  const DeviceCaps& caps() const { return caps_; }
  Events events() const { return {instance(), device_.get(), queue_.get()}; }
  const std::shared_ptr<DeviceMutex>& mutex() const { return mutex_; }
  // Whether the buffers of inputs and outputs can be mapped themselves.
  bool is_shared() const { return is_shared_; }
  bool is_lost() const;

  // Throws Failure if the device is lost: wgpu would abort the process.
  void check() const;

  // Throws Failure, once, for an error that no scope has met since the last time: what
  // was computed cannot be relied on.
  void check_uncaptured(const std::string& where) const;

  // Runs `work`; an error that wgpu reports meanwhile leaves as a Failure that says
  // `where`.
  void checked(const std::string& where, const std::function<void()>& work) const;

  // The Failure for what wgpu has reported.
  Failure failure(const std::string& where, const GpuFailure& found) const;

  // A zeroed buffer.
  std::shared_ptr<GpuBuffer> buffer(const std::string& label, uint64_t size,
                                    WGPUBufferUsage usage) const;

  // Kernels that were compiled so far.
  size_t pipelines_made() const { return pipelines_made_; }

  // The compiled kernel, which all users of the same text share. With `is_trusted`,
  // loops have no counters, where the library can leave them out.
  std::shared_ptr<const Pipeline> pipeline(const std::string& label,
                                           const std::string& text,
                                           const std::vector<Access>& access,
                                           bool is_trusted, const std::string& where);

  // Has the driver compile what it may have put off to a kernel's first dispatch, by
  // one of no workgroups, which touches nothing. `spares` are bound, and grow as
  // needed. A kernel that wants larger ones is left to its first call.
  void warm(const Pipeline& pipeline, Spares& spares) const;

  // The shared buffer for a key, which says what its content is; `make` if it is new.
  std::shared_ptr<GpuBuffer> constant(
      const std::string& key, const std::function<std::shared_ptr<GpuBuffer>()>& make);

  // Writes whole words.
  void write(const GpuBuffer& buffer, uint64_t offset, const void* data,
             size_t size) const;

  // Waits for all submitted work and writes, whose copies wgpu then drops.
  void settle(const std::string& where) const;

 private:
  struct Notes;

  void request();
  std::shared_ptr<const Layout> layout(const std::vector<Access>& access);

  Adapter adapter_;
  Notes* notes_;  // what callbacks tell; never freed, because they may come at any time
  OwnDevice device_;
  OwnQueue queue_;
  DeviceCaps caps_;
  bool is_shared_ = false;
  std::shared_ptr<DeviceMutex> mutex_;
  std::map<std::vector<Access>, std::shared_ptr<const Layout>> layouts_;
  std::map<std::string, std::weak_ptr<const Pipeline>> pipelines_;
  std::atomic<size_t> pipelines_made_{0};  // counted by any thread
  std::map<std::string, std::weak_ptr<GpuBuffer>> constants_;
};

// Holds a device's mutex. Throws what check_process() throws.
class DeviceLock {
 public:
  explicit DeviceLock(const Device& device);
  ~DeviceLock() { mutex_->unlock(); }
  DeviceLock(const DeviceLock&) = delete;
  DeviceLock& operator=(const DeviceLock&) = delete;

 private:
  std::shared_ptr<DeviceMutex> mutex_;
};

}  // namespace etwgpu
