#include "player/device.h"

#include "player/adapter.h"
#include "player/callback.h"
#include "player/cut.h"
#include "player/error_scope.h"
#include "player/events.h"
#include "player/failure.h"
#include "player/owned.h"
#include "player/process.h"
#include "player/wgpu_api.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace etwgpu {
namespace {

constexpr char kLost[] =
    "the GPU device must be alive, got lost; load the method again for a new one";

struct DeviceAnswer {
  WGPUDevice device = nullptr;
  std::string message;
  std::atomic<bool> is_done{false};
};

void receive_device(WGPURequestDeviceStatus status, WGPUDevice device,
                    WGPUStringView message, void* userdata, void*) noexcept {
  const auto answer = take_back<DeviceAnswer>(userdata);
  answer->device = status == WGPURequestDeviceStatus_Success ? device : nullptr;
  answer->message = text_of(message);
  answer->is_done.store(true, std::memory_order_release);
}

// The line of a message that says most. Of wgpu's, the last one, since each is caused
// by those below it, or what a parser says of a kernel, before it quotes the kernel. Of
// Dawn's, the first one: below it is what was done meanwhile.
std::string cause_of(const std::string& text) {
  if (text.find("\n - While ") != std::string::npos) {
    return text.substr(0, text.find('\n'));
  }
  std::istringstream lines(text);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) {
      continue;
    }
    last = line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
    if (last.find("parsing error:") != std::string::npos) {
      break;
    }
  }
  return last;
}

// Whether a line of wgpu's message says so, with nothing that it quotes: a file's names
// and kernels may speak of lost devices, too.
bool says_lost(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line.erase(line.find_last_not_of(" \t\r.") + 1);
    const bool is_quote = line.find_first_of("'\"`") != std::string::npos ||
                          line.find("\u2502") != std::string::npos;
    for (const std::string end : {"evice is lost", "evice was lost"}) {
      if (!is_quote && line.size() >= end.size() &&
          line.compare(line.size() - end.size(), end.size(), end) == 0) {
        return true;
      }
    }
  }
  return false;
}

// wgpu's message, which quotes kernels: one from a file may have lines without end.
std::string shortened(const std::string& text) {
  constexpr size_t kLine = 200;
  constexpr size_t kLines = 40;
  std::istringstream lines(text);
  std::string made;
  size_t count = 0;
  for (std::string line; count < kLines && std::getline(lines, line); ++count) {
    made += (count == 0 ? "" : "\n") + cut(line, kLine);
  }
  return made;
}

WGPUBufferBindingType binding_type(Access access) {
  switch (access) {
    case Access::Read:
      return WGPUBufferBindingType_ReadOnlyStorage;
    case Access::ReadWrite:
      return WGPUBufferBindingType_Storage;
    case Access::Uniform:
      break;
  }
  return WGPUBufferBindingType_Uniform;
}

// What is kept for a key; null if nobody has it. Keys that nobody has are forgotten.
template <typename T>
std::shared_ptr<T> find_alive(std::map<std::string, std::weak_ptr<T>>& kept,
                              const std::string& key) {
  const auto found = kept.find(key);
  if (found != kept.end()) {
    if (std::shared_ptr<T> alive = found->second.lock()) {
      return alive;
    }
  }
  for (auto at = kept.begin(); at != kept.end();) {
    at = at->second.expired() ? kept.erase(at) : std::next(at);
  }
  return nullptr;
}

// Devices by what was asked for. Never destroyed: threads may use it while the process
// ends.
struct Shared {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Device>> devices;
};

Shared& shared() {
  static Shared* instance = new Shared();
  return *instance;
}

}  // namespace

struct Device::Notes {
  std::mutex mutex;
  bool is_lost = false;
  std::string reason;      // why it is lost
  std::string uncaptured;  // the last error that no scope has met

  // So that all are known to the end of the process.
  static Notes* make() {
    static std::mutex guard;
    static auto* all = new std::list<Notes>();
    const std::lock_guard<std::mutex> lock(guard);
    return &all->emplace_back();
  }

  static void receive_lost(WGPUDevice const*, WGPUDeviceLostReason reason,
                           WGPUStringView message, void* userdata, void*) noexcept {
    auto* notes = static_cast<Notes*>(userdata);
    const std::lock_guard<std::mutex> lock(notes->mutex);
    notes->is_lost = true;
    notes->reason = reason == WGPUDeviceLostReason_Destroyed ? "" : text_of(message);
  }

  static void receive_error(WGPUDevice const*, WGPUErrorType, WGPUStringView message,
                            void* userdata, void*) noexcept {
    auto* notes = static_cast<Notes*>(userdata);
    const std::lock_guard<std::mutex> lock(notes->mutex);
    notes->uncaptured = text_of(message);
  }
};

std::shared_ptr<Device> Device::get(const std::string& part) {
  watch_forks();
  open_gpu();
  open_wgpu();
  const std::lock_guard<std::mutex> lock(shared().mutex);
  std::weak_ptr<Device>& known = shared().devices[part];
  std::shared_ptr<Device> device = known.lock();
  if (device == nullptr || device->is_lost()) {
    device = std::make_shared<Device>(choose_adapter(part));
    known = device;
  }
  return device;
}

Device::Device(Adapter adapter)
    : adapter_(std::move(adapter)),
      notes_(Notes::make()),
      mutex_(std::make_shared<DeviceMutex>()) {
  request();
  queue_ = OwnQueue(wgpu().wgpuDeviceGetQueue(device_.get()));
}

Device::~Device() {
  // Now, and not when the last bind group of a late callback goes.
  wgpu().wgpuDeviceDestroy(device_.get());
}

void Device::request() {
  const WgpuApi& api = wgpu();
  const WGPUAdapter adapter = adapter_.handle.get();
  const auto has = [&](auto feature) {
    return api.wgpuAdapterHasFeature(adapter, static_cast<WGPUFeatureName>(feature)) !=
           0;
  };
  std::vector<WGPUFeatureName> wanted;
  const auto take = [&](auto feature) {
    if (!has(feature)) {
      return false;
    }
    wanted.push_back(static_cast<WGPUFeatureName>(feature));
    return true;
  };
  const int before = api.has_early_features ? 1 : 0;
  caps_.f16 = take(WGPUFeatureName_ShaderF16 - before);
  caps_.subgroups = (api.is_native() && take(WGPUNativeFeature_Subgroup)) ||
                    take(WGPUFeatureName_Subgroups - before);
  caps_.is_cpu = adapter_.type == WGPUAdapterType_CPU;
  // Only where the GPU has no memory of its own: kernels of a discrete one would reach
  // mapped buffers over the bus.
  const bool is_in_host_memory =
      caps_.is_cpu || adapter_.type == WGPUAdapterType_IntegratedGPU;
  is_shared_ = api.is_native() && is_in_host_memory &&
               take(WGPUNativeFeature_MappablePrimaryBuffers);

  WGPULimits limits = {};
  api.wgpuAdapterGetLimits(adapter, &limits);
  limits.nextInChain = nullptr;
  limits.maxImmediateSize = WGPU_LIMIT_U32_UNDEFINED;
  caps_.max_binding = limits.maxStorageBufferBindingSize;
  caps_.max_buffer = limits.maxBufferSize;
  caps_.max_storage_buffers = limits.maxStorageBuffersPerShaderStage;
  caps_.max_workgroups = limits.maxComputeWorkgroupsPerDimension;
  caps_.max_invocations = limits.maxComputeInvocationsPerWorkgroup;
  caps_.workgroup_memory = limits.maxComputeWorkgroupStorageSize;
  caps_.offset_align = limits.minStorageBufferOffsetAlignment;

  const std::string label = "executorch_webgpu";
  WGPUDeviceDescriptor descriptor = {};
  descriptor.label = string_view(label);
  descriptor.requiredFeatureCount = wanted.size();
  descriptor.requiredFeatures = wanted.data();
  descriptor.requiredLimits = &limits;
  descriptor.deviceLostCallbackInfo.mode = WGPUCallbackMode_AllowSpontaneous;
  descriptor.deviceLostCallbackInfo.callback = &Notes::receive_lost;
  descriptor.deviceLostCallbackInfo.userdata1 = notes_;
  descriptor.uncapturedErrorCallbackInfo.callback = &Notes::receive_error;
  descriptor.uncapturedErrorCallbackInfo.userdata1 = notes_;

  constexpr std::chrono::seconds kPatience(60);
  const auto answer = std::make_shared<DeviceAnswer>();
  WGPURequestDeviceCallbackInfo info = {};
  info.mode = WGPUCallbackMode_AllowSpontaneous;
  info.callback = &receive_device;
  info.userdata1 = lend(answer);
  api.wgpuAdapterRequestDevice(adapter, &descriptor, info);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!answer->is_done.load(std::memory_order_acquire) &&
         std::chrono::steady_clock::now() < end) {
    api.wgpuInstanceProcessEvents(instance());
    std::this_thread::yield();
  }
  if (!answer->is_done.load(std::memory_order_acquire) || answer->device == nullptr) {
    throw Failure(Code::DelegateInvalidHandle,
                  adapter_.name + ": a device must be made, got none: " +
                      (answer->is_done ? cause_of(answer->message) : "no answer"));
  }
  device_ = OwnDevice(answer->device);
}

bool Device::is_lost() const {
  const std::lock_guard<std::mutex> lock(notes_->mutex);
  return notes_->is_lost;
}

void Device::check() const {
  const std::lock_guard<std::mutex> lock(notes_->mutex);
  if (notes_->is_lost) {
    throw Failure(
        Code::DelegateInvalidHandle,
        notes_->reason.empty() ? kLost : std::string(kLost) + ": " + notes_->reason);
  }
}

void Device::check_uncaptured(const std::string& where) const {
  std::string found;
  {
    const std::lock_guard<std::mutex> lock(notes_->mutex);
    found.swap(notes_->uncaptured);
  }
  if (!found.empty()) {
    throw failure(where, GpuFailure(found));
  }
}

Failure Device::failure(const std::string& where, const GpuFailure& found) const {
  const std::string text = shortened(found.what());
  if (says_lost(found.what())) {
    const std::lock_guard<std::mutex> lock(notes_->mutex);
    notes_->is_lost = true;
    return Failure(Code::DelegateInvalidHandle, where + ": " + kLost);
  }
  if (found.is_memory()) {
    return Failure(Code::MemoryAllocationFailed,
                   where + ": out of GPU memory: " + text);
  }
  const std::string cause = cause_of(text);
  return Failure(Code::DelegateInvalidHandle,
                 where + ": " + cause + (text == cause ? "" : "\n" + text));
}

void Device::checked(const std::string& where,
                     const std::function<void()>& work) const {
  check();
  try {
    ErrorScope scope(events());
    work();
    scope.check();
  } catch (const GpuFailure& found) {
    throw failure(where, found);
  }
}

std::shared_ptr<GpuBuffer> Device::buffer(const std::string& label, uint64_t size,
                                          WGPUBufferUsage usage) const {
  if (size > caps_.max_buffer) {
    throw Failure(Code::MemoryAllocationFailed,
                  label + ": max-buffer-size of " + name() + " is " +
                      std::to_string(caps_.max_buffer) + " bytes, got " +
                      std::to_string(size));
  }
  std::shared_ptr<GpuBuffer> made;
  checked(label, [&] {
    WGPUBufferDescriptor descriptor = {};
    descriptor.label = string_view(label);
    descriptor.size = size;
    descriptor.usage = usage;
    OwnBuffer handle(wgpu().wgpuDeviceCreateBuffer(device_.get(), &descriptor));
    if (handle.get() == nullptr) {
      throw GpuFailure("no buffer of " + std::to_string(size) + " bytes", true);
    }
    made = std::make_shared<GpuBuffer>(std::move(handle), size);
  });
  return made;
}

std::shared_ptr<const Layout> Device::layout(const std::vector<Access>& access) {
  std::shared_ptr<const Layout>& known = layouts_[access];
  if (known != nullptr) {
    return known;
  }
  // Explicit, because an automatic layout drops bindings that a kernel ignores.
  std::vector<WGPUBindGroupLayoutEntry> entries(access.size());
  for (size_t i = 0; i < access.size(); ++i) {
    entries[i].binding = static_cast<uint32_t>(i);
    entries[i].visibility = WGPUShaderStage_Compute;
    entries[i].buffer.type = binding_type(access[i]);
  }
  WGPUBindGroupLayoutDescriptor group = {};
  group.entryCount = entries.size();
  group.entries = entries.data();
  auto made = std::make_shared<Layout>();
  made->group =
      OwnGroupLayout(wgpu().wgpuDeviceCreateBindGroupLayout(device_.get(), &group));
  WGPUPipelineLayoutDescriptor pipeline = {};
  pipeline.bindGroupLayoutCount = 1;
  pipeline.bindGroupLayouts = &made->group.get();
  made->pipeline = OwnPipelineLayout(
      wgpu().wgpuDeviceCreatePipelineLayout(device_.get(), &pipeline));
  known = std::move(made);
  return known;
}

std::shared_ptr<const Pipeline> Device::pipeline(const std::string& label,
                                                 const std::string& text,
                                                 const std::vector<Access>& access,
                                                 bool is_trusted,
                                                 const std::string& where) {
  const WgpuApi& api = wgpu();
  is_trusted = is_trusted && api.wgpuDeviceCreateShaderModuleTrusted != nullptr;
  std::string key = is_trusted ? "t" : "c";
  for (const Access each : access) {
    key += static_cast<char>('0' + static_cast<int>(each));
  }
  key += "\n" + text;
  if (std::shared_ptr<const Pipeline> found = find_alive(pipelines_, key)) {
    return found;
  }
  auto made = std::make_shared<Pipeline>();
  made->bindings = access.size();
  checked(where, [&] {
    WGPUShaderSourceWGSL source = {};
    source.chain.sType = WGPUSType_ShaderSourceWGSL;
    source.code = string_view(text);
    WGPUShaderModuleDescriptor descriptor = {};
    descriptor.nextInChain = &source.chain;
    descriptor.label = string_view(label);
    const OwnModule module(
        is_trusted
            ? api.wgpuDeviceCreateShaderModuleTrusted(
                  device_.get(), &descriptor, WGPUShaderRuntimeChecks_BoundsChecks)
            : api.wgpuDeviceCreateShaderModule(device_.get(), &descriptor));
    const std::string main = "main";
    made->layout = layout(access);
    WGPUComputePipelineDescriptor pipeline = {};
    pipeline.label = string_view(label);
    pipeline.layout = made->layout->pipeline.get();
    pipeline.compute.module = module.get();
    pipeline.compute.entryPoint = string_view(main);
    made->handle =
        OwnPipeline(api.wgpuDeviceCreateComputePipeline(device_.get(), &pipeline));
  });
  pipelines_[key] = made;
  ++pipelines_made_;
  return made;
}

void Device::warm(const Pipeline& pipeline, Spares& spares) const {
  constexpr uint64_t kSpare = 1 << 16;  // what any device can bind as a uniform buffer
  if (pipeline.is_warm) {
    return;
  }
  while (spares.size() < pipeline.bindings) {
    spares.push_back(
        buffer("spare", kSpare, WGPUBufferUsage_Storage | WGPUBufferUsage_Uniform));
  }
  std::vector<WGPUBindGroupEntry> entries(pipeline.bindings);
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i].binding = static_cast<uint32_t>(i);
    entries[i].buffer = spares[i]->get();
    entries[i].size = kSpare;
  }
  const WgpuApi& api = wgpu();
  std::shared_ptr<OwnCommands> commands;
  try {
    checked("warm", [&] {
      WGPUBindGroupDescriptor descriptor = {};
      descriptor.layout = pipeline.layout->group.get();
      descriptor.entryCount = entries.size();
      descriptor.entries = entries.data();
      const OwnBindGroup group(
          api.wgpuDeviceCreateBindGroup(device_.get(), &descriptor));
      const OwnEncoder encoder(
          api.wgpuDeviceCreateCommandEncoder(device_.get(), nullptr));
      {
        const OwnPass pass(
            api.wgpuCommandEncoderBeginComputePass(encoder.get(), nullptr));
        api.wgpuComputePassEncoderSetPipeline(pass.get(), pipeline.handle.get());
        api.wgpuComputePassEncoderSetBindGroup(pass.get(), 0, group.get(), 0, nullptr);
        api.wgpuComputePassEncoderDispatchWorkgroups(pass.get(), 0, 0, 0);
        api.wgpuComputePassEncoderEnd(pass.get());
      }
      commands = std::make_shared<OwnCommands>(
          api.wgpuCommandEncoderFinish(encoder.get(), nullptr));
    });
  } catch (const Failure&) {
    check();
    return;  // it is compiled, and its first call finds room for what it binds
  }
  checked("warm",
          [&] { wait_for(events(), submit_commands(queue_.get(), commands->get())); });
  pipeline.is_warm = true;
}

std::shared_ptr<GpuBuffer> Device::constant(
    const std::string& key, const std::function<std::shared_ptr<GpuBuffer>()>& make) {
  std::shared_ptr<GpuBuffer> found = find_alive(constants_, key);
  if (found == nullptr) {
    found = make();
    constants_[key] = found;
  }
  return found;
}

void Device::write(const GpuBuffer& buffer, uint64_t offset, const void* data,
                   size_t size) const {
  wgpu().wgpuQueueWriteBuffer(queue_.get(), buffer.get(), offset, data, size);
}

void Device::settle(const std::string& where) const {
  // Finishing an encoder reports a lost device, where submitting would abort.
  std::shared_ptr<OwnCommands> commands;
  checked(where, [&] {
    const OwnEncoder encoder(
        wgpu().wgpuDeviceCreateCommandEncoder(device_.get(), nullptr));
    commands = std::make_shared<OwnCommands>(
        wgpu().wgpuCommandEncoderFinish(encoder.get(), nullptr));
  });
  checked(where,
          [&] { wait_for(events(), submit_commands(queue_.get(), commands->get())); });
}

DeviceLock::DeviceLock(const Device& device) : mutex_(device.mutex()) {
  check_process();
  while (!mutex_->try_lock_for(std::chrono::milliseconds(100))) {
    check_process();
  }
}

}  // namespace etwgpu
