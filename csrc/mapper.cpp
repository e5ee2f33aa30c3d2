#include "mapper.h"

#include <thread>

#include "failure.h"

namespace etwgpu {
namespace {

const void* checked(const void* data) {
  if (data == nullptr) {
    throw GpuFailure("mapping: the buffer has no mapped range");
  }
  return data;
}

}  // namespace

Mapper::~Mapper() {
  for (const auto& request : requests_) {
    if (request->is_mapped && !request->is_kept) {
      wgpu().wgpuBufferUnmap(request->buffer);
    }
  }
}

void Mapper::request(WGPUBuffer buffer, WGPUMapMode mode, uint64_t size) {
  requests_.push_back(std::make_unique<Request>());
  Request& request = *requests_.back();
  request.buffer = buffer;
  request.size = size;
  WGPUBufferMapCallbackInfo info = {};
  info.mode = WGPUCallbackMode_AllowSpontaneous;
  info.callback = &Mapper::receive;
  info.userdata1 = &request;
  wgpu().wgpuBufferMapAsync(buffer, mode, 0, size, info);
}

void Mapper::wait(const WGPUSubmissionIndex* index) {
  // Another thread that polls may be the one that calls back, a moment after our
  // own poll has returned.
  while (!is_done()) {
    wgpu().wgpuDevicePoll(device_, true, index);
    if (!is_done()) {
      std::this_thread::yield();
    }
  }
  for (const auto& request : requests_) {
    if (!request->is_mapped) {
      throw GpuFailure("mapping: " + request->message);
    }
  }
}

const uint8_t* Mapper::read(WGPUBuffer buffer) const {
  const Request& request = find(buffer);
  return static_cast<const uint8_t*>(
      checked(wgpu().wgpuBufferGetConstMappedRange(buffer, 0, request.size)));
}

uint8_t* Mapper::keep(WGPUBuffer buffer) {
  Request& request = find(buffer);
  void* data = wgpu().wgpuBufferGetMappedRange(buffer, 0, request.size);
  checked(data);
  request.is_kept = true;
  return static_cast<uint8_t*>(data);
}

void Mapper::receive(WGPUMapAsyncStatus status, WGPUStringView message, void* request,
                     void*) {
  Request* found = static_cast<Request*>(request);
  found->is_mapped = status == WGPUMapAsyncStatus_Success;
  found->message = text_of(message);
  found->is_done.store(true, std::memory_order_release);
}

bool Mapper::is_done() const {
  for (const auto& request : requests_) {
    if (!request->is_done.load(std::memory_order_acquire)) {
      return false;
    }
  }
  return true;
}

Mapper::Request& Mapper::find(WGPUBuffer buffer) const {
  for (const auto& request : requests_) {
    if (request->buffer == buffer) {
      return *request;
    }
  }
  throw GpuFailure("mapping: the buffer was not asked for");
}

}  // namespace etwgpu
