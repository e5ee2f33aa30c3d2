// The errors that wgpu reports between two points; without a scope they would reach
// only a log.

#pragma once

#include "player/events.h"

#include <atomic>
#include <memory>
#include <string>

namespace etwgpu {

// Used by one thread at a time: scopes belong to the device.
class ErrorScope {
 public:
  explicit ErrorScope(const Events& events);
  ~ErrorScope() { pop(); }
  ErrorScope(const ErrorScope&) = delete;
  ErrorScope& operator=(const ErrorScope&) = delete;

  // Throws GpuFailure if there was an error since construction. wgpu-native calls back
  // before it returns from popping a scope; others are asked for some time. An answer
  // that comes later is written to memory that is alive, but what the scope has found
  // is not known then, and that is an error.
  void check();

 private:
  struct Found {
    std::string message;  // complete when all have answered
    bool is_memory = false;
    std::atomic<int> answers{0};
  };

  void pop();
  static void receive(WGPUPopErrorScopeStatus status, WGPUErrorType type,
                      WGPUStringView message, void* userdata, void*) noexcept;

  Events events_;
  int open_;
  std::shared_ptr<Found> found_ = std::make_shared<Found>();
};

}  // namespace etwgpu
