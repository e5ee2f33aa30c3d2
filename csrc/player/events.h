// How a thread learns that the GPU is done.
//
// wgpu-native has functions of its own, which wait inside the driver and for one
// submission. Elsewhere the standard ones are asked in turn.

#pragma once

#include "player/wgpu_api.h"

#include <functional>

namespace etwgpu {

// What can be asked. The instance may be null where the library is wgpu-native.
struct Events {
  WGPUInstance instance = nullptr;
  WGPUDevice device = nullptr;
  WGPUQueue queue = nullptr;
};

// Submits commands; the index is of use to process() alone.
WGPUSubmissionIndex submit_commands(WGPUQueue queue, WGPUCommandBuffer commands);

// Calls back for what is done. If `is_waiting`, and the library can wait, that is when
// submission `index`, or if that is null all that was submitted, is done.
void process(const Events& events, bool is_waiting, const WGPUSubmissionIndex* index);

// Waits for submission `index`.
void wait_for(const Events& events, WGPUSubmissionIndex index);

// Waits until all that was submitted before is done. Between looks it calls `rest`,
// which may sleep, and returns false to give up, or throws.
void finish(const Events& events, const std::function<bool()>& rest);

}  // namespace etwgpu
