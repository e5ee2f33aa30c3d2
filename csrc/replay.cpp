#include "replay.h"

#include <cstring>
#include <thread>

#include "failure.h"

namespace etwgpu {
namespace {

std::atomic<uint64_t> g_serial{0};
std::atomic<uint64_t> g_submissions{0};

std::string text_of(WGPUStringView view) {
  if (view.data == nullptr) {
    return "";
  }
  const size_t length =
      view.length == WGPU_STRLEN ? std::strlen(view.data) : view.length;
  return std::string(view.data, length);
}

// Collects what wgpu reports between construction and check(). Without it,
// errors would reach only a log.
class ErrorScope {
 public:
  explicit ErrorScope(WGPUDevice device) : device_(device) {
    wgpu().wgpuDevicePushErrorScope(device_, WGPUErrorFilter_Validation);
    wgpu().wgpuDevicePushErrorScope(device_, WGPUErrorFilter_OutOfMemory);
  }
  ~ErrorScope() { pop(); }
  ErrorScope(const ErrorScope&) = delete;
  ErrorScope& operator=(const ErrorScope&) = delete;

  void check() {
    pop();
    if (!message_.empty()) {
      throw GpuFailure(message_);
    }
  }

 private:
  void pop() {
    for (; open_ > 0; --open_) {
      WGPUPopErrorScopeCallbackInfo info = {};
      info.mode = WGPUCallbackMode_AllowSpontaneous;
      info.callback = &ErrorScope::receive;
      info.userdata1 = this;
      wgpu().wgpuDevicePopErrorScope(device_, info);
    }
  }

  static void receive(WGPUPopErrorScopeStatus, WGPUErrorType type,
                      WGPUStringView message, void* self, void*) {
    if (type != WGPUErrorType_NoError) {
      static_cast<ErrorScope*>(self)->message_ += text_of(message);
    }
  }

  WGPUDevice device_;
  int open_ = 2;
  std::string message_;
};

struct Encoder {
  explicit Encoder(WGPUDevice device)
      : handle(wgpu().wgpuDeviceCreateCommandEncoder(device, nullptr)) {}
  ~Encoder() { wgpu().wgpuCommandEncoderRelease(handle); }
  WGPUCommandEncoder handle;
};

struct Commands {
  explicit Commands(WGPUCommandBuffer buffer) : handle(buffer) {}
  ~Commands() { wgpu().wgpuCommandBufferRelease(handle); }
  WGPUCommandBuffer handle;
};

struct Mapping {
  std::atomic<bool> done{false};
  WGPUMapAsyncStatus status{};
  std::string message;

  static void receive(WGPUMapAsyncStatus status, WGPUStringView message, void* self,
                      void*) {
    Mapping* mapping = static_cast<Mapping*>(self);
    mapping->status = status;
    mapping->message = text_of(message);
    mapping->done.store(true, std::memory_order_release);
  }
};

struct Unmap {
  WGPUBuffer buffer;
  ~Unmap() { wgpu().wgpuBufferUnmap(buffer); }
};

}  // namespace

uint64_t submissions() { return g_submissions.load(); }

const void* stage_input(const Port& port, const void* feed,
                        std::vector<uint8_t>& scratch) {
  const size_t bytes = port.numel * storage_size(port.storage);
  if (is_same_bytes(port.dtype, port.storage) && bytes % 4 == 0) {
    return feed;
  }
  scratch.resize(port.bytes());
  const size_t converted =
      to_storage(port.dtype, port.storage, feed, scratch.data(), port.numel);
  if (converted != port.numel) {
    const int64_t value = static_cast<const int64_t*>(feed)[converted];
    throw Failure(Error::InvalidArgument,
                  port.name + ": int64 values must fit int32, got " +
                      std::to_string(value) + " at " + std::to_string(converted));
  }
  return scratch.data();
}

Replay::Replay(std::shared_ptr<Session> session, std::shared_ptr<const Ports> ports,
               std::vector<Step> steps, std::string params, WGPUBuffer params_buffer,
               WGPUBuffer status, std::map<int32_t, std::string> calls)
    : session_(std::move(session)),
      ports_(std::move(ports)),
      steps_(std::move(steps)),
      params_(std::move(params)),
      params_buffer_(params_buffer),
      status_(status),
      calls_(std::move(calls)),
      serial_(++g_serial) {
  if (status_ != nullptr) {
    read_size_ = kStatusBytes;
  }
  for (const Port& port : ports_->outputs) {
    if (port.buffer != nullptr && port.numel > 0) {
      read_size_ = std::max(read_size_, port.offset + port.bytes());
    }
  }
  if (read_size_ > session_->staging_size) {
    throw Failure(Error::Internal, "replay: staging buffer must have " +
                                       std::to_string(read_size_) + " bytes, got " +
                                       std::to_string(session_->staging_size));
  }
  if (!params_.empty() && params_buffer_ == nullptr) {
    throw Failure(Error::Internal, "replay: parameters must have a buffer");
  }
}

void Replay::run(const Feeds& feeds, const Fetches& fetches) {
  ErrorScope scope(session_->device);
  upload(feeds);
  Commands commands(encode());
  // wgpu-native aborts the process if an invalid command buffer is submitted.
  scope.check();
  if (!params_.empty()) {
    session_->params_of[params_buffer_] = serial_;
  }
  const WGPUSubmissionIndex index =
      wgpu().wgpuQueueSubmitForIndex(session_->queue, 1, &commands.handle);
  ++g_submissions;
  if (read_size_ > 0) {
    read_back(index, fetches);
  }
}

void Replay::record() const { Commands commands(encode()); }

void Replay::upload(const Feeds& feeds) {
  const WgpuApi& api = wgpu();
  for (size_t i = 0; i < ports_->inputs.size(); ++i) {
    const Port& port = ports_->inputs[i];
    if (port.buffer == nullptr || port.numel == 0) {
      continue;
    }
    const void* data = stage_input(port, feeds[i], session_->scratch);
    api.wgpuQueueWriteBuffer(session_->queue, port.buffer, 0, data, port.bytes());
  }
  if (!params_.empty() && session_->params_of[params_buffer_] != serial_) {
    // Until the write is known to be good, nobody's parameters are there.
    session_->params_of[params_buffer_] = 0;
    api.wgpuQueueWriteBuffer(session_->queue, params_buffer_, 0, params_.data(),
                             params_.size());
  }
}

WGPUCommandBuffer Replay::encode() const {
  const WgpuApi& api = wgpu();
  Encoder encoder(session_->device);
  if (status_ != nullptr) {
    api.wgpuCommandEncoderClearBuffer(encoder.handle, status_, 0, kStatusBytes);
  }
  encode_pass(encoder.handle);
  if (status_ != nullptr) {
    api.wgpuCommandEncoderCopyBufferToBuffer(encoder.handle, status_, 0,
                                             session_->staging, 0, kStatusBytes);
  }
  for (const Port& port : ports_->outputs) {
    if (port.buffer != nullptr && port.numel > 0) {
      api.wgpuCommandEncoderCopyBufferToBuffer(
          encoder.handle, port.buffer, 0, session_->staging, port.offset, port.bytes());
    }
  }
  return api.wgpuCommandEncoderFinish(encoder.handle, nullptr);
}

void Replay::encode_pass(WGPUCommandEncoder encoder) const {
  if (steps_.empty()) {
    return;
  }
  const WgpuApi& api = wgpu();
  const WGPUComputePassEncoder pass =
      api.wgpuCommandEncoderBeginComputePass(encoder, nullptr);
  WGPUComputePipeline pipeline = nullptr;
  WGPUBindGroup group = nullptr;
  for (const Step& step : steps_) {
    if (step.pipeline != pipeline) {
      pipeline = step.pipeline;
      api.wgpuComputePassEncoderSetPipeline(pass, pipeline);
    }
    if (step.group != group) {
      group = step.group;
      api.wgpuComputePassEncoderSetBindGroup(pass, 0, group, 0, nullptr);
    }
    api.wgpuComputePassEncoderDispatchWorkgroups(pass, step.x, step.y, step.z);
  }
  api.wgpuComputePassEncoderEnd(pass);
  api.wgpuComputePassEncoderRelease(pass);
}

void Replay::read_back(WGPUSubmissionIndex index, const Fetches& fetches) {
  const WgpuApi& api = wgpu();
  Mapping mapping;
  WGPUBufferMapCallbackInfo info = {};
  info.mode = WGPUCallbackMode_AllowSpontaneous;
  info.callback = &Mapping::receive;
  info.userdata1 = &mapping;
  api.wgpuBufferMapAsync(session_->staging, WGPUMapMode_Read, 0, read_size_, info);
  // Another thread that polls may be the one that calls back, a moment after
  // our own poll has returned.
  while (!mapping.done.load(std::memory_order_acquire)) {
    api.wgpuDevicePoll(session_->device, true, &index);
    if (!mapping.done.load(std::memory_order_acquire)) {
      std::this_thread::yield();
    }
  }
  if (mapping.status != WGPUMapAsyncStatus_Success) {
    throw GpuFailure("read-back: " + mapping.message);
  }
  Unmap unmap{session_->staging};
  const uint8_t* staged = static_cast<const uint8_t*>(
      api.wgpuBufferGetConstMappedRange(session_->staging, 0, read_size_));
  if (staged == nullptr) {
    throw GpuFailure("read-back: the staging buffer has no mapped range");
  }
  check_status(staged);
  for (size_t i = 0; i < ports_->outputs.size(); ++i) {
    const Port& port = ports_->outputs[i];
    if (port.buffer != nullptr && port.numel > 0) {
      from_storage(port.dtype, port.storage, staged + port.offset, fetches[i],
                   port.numel);
    }
  }
}

void Replay::check_status(const uint8_t* staged) const {
  if (status_ == nullptr) {
    return;
  }
  int32_t status[4];
  std::memcpy(status, staged, sizeof(status));
  if (status[0] == 0) {
    return;
  }
  const auto found = calls_.find(status[1]);
  const std::string label =
      found == calls_.end() ? "call " + std::to_string(status[1]) : found->second;
  throw Failure(Error::InvalidArgument, label + ": index must be in [0, " +
                                            std::to_string(status[3]) + "), got " +
                                            std::to_string(status[2]));
}

}  // namespace etwgpu
