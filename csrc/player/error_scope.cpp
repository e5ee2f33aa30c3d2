#include "player/error_scope.h"

#include "player/callback.h"
#include "player/events.h"
#include "player/failure.h"
#include "player/wgpu_api.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace etwgpu {
namespace {

constexpr int kScopes = 2;

}  // namespace

ErrorScope::ErrorScope(const Events& events) : events_(events), open_(kScopes) {
  wgpu().wgpuDevicePushErrorScope(events_.device, WGPUErrorFilter_Validation);
  wgpu().wgpuDevicePushErrorScope(events_.device, WGPUErrorFilter_OutOfMemory);
}

void ErrorScope::check() {
  constexpr std::chrono::seconds kPatience(10);
  pop();
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (found_->answers.load(std::memory_order_acquire) != kScopes) {
    if (events_.instance == nullptr || std::chrono::steady_clock::now() > end) {
      throw GpuFailure(
          "an error scope must be answered when it is popped, got nothing");
    }
    wgpu().wgpuInstanceProcessEvents(events_.instance);
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  if (!found_->message.empty()) {
    throw GpuFailure(found_->message, found_->is_memory);
  }
}

void ErrorScope::pop() {
  for (; open_ > 0; --open_) {
    WGPUPopErrorScopeCallbackInfo info = {};
    info.mode = WGPUCallbackMode_AllowSpontaneous;
    info.callback = &ErrorScope::receive;
    info.userdata1 = lend(found_);
    wgpu().wgpuDevicePopErrorScope(events_.device, info);
  }
}

// noexcept, because an exception must not unwind through wgpu's frames.
void ErrorScope::receive(WGPUPopErrorScopeStatus, WGPUErrorType type,
                         WGPUStringView message, void* userdata, void*) noexcept {
  const auto found = take_back<Found>(userdata);
  if (type != WGPUErrorType_NoError) {
    found->message += text_of(message);
    found->is_memory = found->is_memory || type == WGPUErrorType_OutOfMemory;
  }
  found->answers.fetch_add(1, std::memory_order_release);
}

}  // namespace etwgpu
