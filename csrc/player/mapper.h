// Maps GPU buffers into the host's memory.

#pragma once

#include "player/events.h"
#include "player/wgpu_api.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace etwgpu {

// How long a thread waits for the GPU, and what it does meanwhile.
struct Patience {
  std::chrono::seconds timeout{600};
  void (*check)() = nullptr;  // called now and then; what it throws ends the wait
};

// The patience of one call.
class Watch {
 public:
  explicit Watch(const Patience& patience) : patience_(patience) {}

  // Throws Failure if the time is up, or what `patience.check` throws.
  void check();

  // The same, then sleeps for under 1% of the time that has passed.
  void sleep();

 private:
  using Clock = std::chrono::steady_clock;
  const Patience& patience_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point checked_ = begin_;
};

// Maps any number of buffers in one wait. Its destructor unmaps those that were not
// kept, and cancels what is still pending; the callbacks share the state of their
// requests (callback.h), so that they may come after it.
class Mapper {
 public:
  explicit Mapper(const Events& events) : events_(events) {}
  ~Mapper();
  Mapper(const Mapper&) = delete;
  Mapper& operator=(const Mapper&) = delete;

  // Asks for the first `size` bytes.
  void request(WGPUBuffer buffer, WGPUMapMode mode, uint64_t size);

  // Waits until every request is answered, which is when submission `index`, or if
  // that is null everything submitted, is done. Throws GpuFailure if a buffer could
  // not be mapped, and what the watch throws. If `is_quick`, the driver waits, which is
  // exact but cannot be left; else the thread sleeps and looks in turn.
  void wait(const WGPUSubmissionIndex* index, Watch& watch, bool is_quick);

  // The bytes of a buffer that was requested and waited for.
  const uint8_t* read(WGPUBuffer buffer) const;

  // The same for writing; the buffer stays mapped, and the caller unmaps it.
  uint8_t* keep(WGPUBuffer buffer);

 private:
  // `is_mapped` and `message` are written before `is_done`, and read after it.
  struct Request {
    WGPUBuffer buffer = nullptr;
    uint64_t size = 0;
    std::atomic<bool> is_done{false};
    bool is_mapped = false;
    bool is_kept = false;
    std::string message;
  };

  static void receive(WGPUMapAsyncStatus status, WGPUStringView message, void* userdata,
                      void*) noexcept;

  bool is_done() const;
  Request& find(WGPUBuffer buffer) const;

  Events events_;
  std::vector<std::shared_ptr<Request>> requests_;
};

}  // namespace etwgpu
