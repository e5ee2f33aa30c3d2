#include "player/events.h"

#include "player/callback.h"
#include "player/wgpu_api.h"

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

namespace etwgpu {
namespace {

struct Done {
  std::atomic<bool> is_done{false};
};

// Also called where the device is lost: nothing is waited for then.
void receive_done(WGPUQueueWorkDoneStatus, WGPUStringView, void* userdata,
                  void*) noexcept {
  take_back<Done>(userdata)->is_done.store(true, std::memory_order_release);
}

}  // namespace

WGPUSubmissionIndex submit_commands(WGPUQueue queue, WGPUCommandBuffer commands) {
  if (wgpu().wgpuQueueSubmitForIndex != nullptr) {
    return wgpu().wgpuQueueSubmitForIndex(queue, 1, &commands);
  }
  wgpu().wgpuQueueSubmit(queue, 1, &commands);
  return 0;
}

void process(const Events& events, bool is_waiting, const WGPUSubmissionIndex* index) {
  if (wgpu().wgpuDevicePoll != nullptr) {
    wgpu().wgpuDevicePoll(events.device, is_waiting, index);
  } else {
    wgpu().wgpuInstanceProcessEvents(events.instance);
  }
}

void wait_for(const Events& events, WGPUSubmissionIndex index) {
  if (wgpu().wgpuDevicePoll != nullptr) {
    wgpu().wgpuDevicePoll(events.device, true, &index);
    return;
  }
  finish(events, [] {
    std::this_thread::yield();
    return true;
  });
}

void finish(const Events& events, const std::function<bool()>& rest) {
  if (wgpu().wgpuDevicePoll != nullptr) {
    // Not the driver's own wait, which may give up, and the process with it. Of what is
    // returned, wgpu-native writes the lowest byte.
    while ((wgpu().wgpuDevicePoll(events.device, false, nullptr) & 0xff) == 0 &&
           rest()) {
    }
    return;
  }
  const auto done = std::make_shared<Done>();
  WGPUQueueWorkDoneCallbackInfo info = {};
  info.mode = WGPUCallbackMode_AllowSpontaneous;
  info.callback = &receive_done;
  info.userdata1 = lend(done);
  wgpu().wgpuQueueOnSubmittedWorkDone(events.queue, info);
  do {
    wgpu().wgpuInstanceProcessEvents(events.instance);
  } while (!done->is_done.load(std::memory_order_acquire) && rest());
}

}  // namespace etwgpu
