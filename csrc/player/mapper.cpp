#include "player/mapper.h"

#include "player/callback.h"
#include "player/events.h"
#include "player/failure.h"
#include "player/wgpu_api.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace etwgpu {
namespace {

template <typename Byte>
Byte* checked(Byte* data) {
  if (data == nullptr) {
    throw GpuFailure("mapping: the buffer has no mapped range");
  }
  return data;
}

}  // namespace

void Watch::check() {
  // Ctrl-C has to be noticed within half a second.
  constexpr Clock::duration kPeriod = std::chrono::milliseconds(50);
  const Clock::time_point now = Clock::now();
  if (now - checked_ < kPeriod) {
    return;
  }
  checked_ = now;
  if (patience_.check != nullptr) {
    patience_.check();
  }
  if (now - begin_ >= patience_.timeout) {
    throw Failure(Code::DelegateInvalidHandle,
                  "the GPU must finish within " +
                      std::to_string(patience_.timeout.count()) +
                      " s, got no answer; ET_WEBGPU_TIMEOUT gives it more time");
  }
}

void Watch::sleep() {
  constexpr Clock::duration kShortest = std::chrono::microseconds(20);
  constexpr Clock::duration kLongest = std::chrono::milliseconds(5);
  check();
  const Clock::duration passed = Clock::now() - begin_;
  std::this_thread::sleep_for(std::clamp(passed / 200, kShortest, kLongest));
}

Mapper::~Mapper() {
  for (const auto& request : requests_) {
    // A request that failed has nothing to unmap, and wgpu would complain.
    const bool has_failed =
        request->is_done.load(std::memory_order_acquire) && !request->is_mapped;
    if (!request->is_kept && !has_failed) {
      wgpu().wgpuBufferUnmap(request->buffer);
    }
  }
}

void Mapper::request(WGPUBuffer buffer, WGPUMapMode mode, uint64_t size) {
  auto request = std::make_shared<Request>();
  request->buffer = buffer;
  request->size = size;
  // Before it is lent: nothing may throw between that and the call.
  requests_.push_back(request);
  WGPUBufferMapCallbackInfo info = {};
  info.mode = WGPUCallbackMode_AllowSpontaneous;
  info.callback = &Mapper::receive;
  info.userdata1 = lend(std::move(request));
  wgpu().wgpuBufferMapAsync(buffer, mode, 0, size, info);
}

void Mapper::wait(const WGPUSubmissionIndex* index, Watch& watch, bool is_quick) {
  // A callback runs in whichever thread polls the device, so it may still be running
  // in another one when our own poll returns.
  while (!is_done()) {
    process(events_, is_quick, index);
    if (!is_done()) {
      watch.sleep();
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
  return checked(static_cast<const uint8_t*>(
      wgpu().wgpuBufferGetConstMappedRange(buffer, 0, request.size)));
}

uint8_t* Mapper::keep(WGPUBuffer buffer) {
  Request& request = find(buffer);
  uint8_t* data = checked(
      static_cast<uint8_t*>(wgpu().wgpuBufferGetMappedRange(buffer, 0, request.size)));
  request.is_kept = true;
  return data;
}

// noexcept, because an exception must not unwind through wgpu's frames.
void Mapper::receive(WGPUMapAsyncStatus status, WGPUStringView message, void* userdata,
                     void*) noexcept {
  const auto request = take_back<Request>(userdata);
  request->is_mapped = status == WGPUMapAsyncStatus_Success;
  request->message = text_of(message);
  request->is_done.store(true, std::memory_order_release);
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
