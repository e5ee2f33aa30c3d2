// Work that a thread does bit by bit, beside calls.

#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

namespace etwgpu {

// A thread that lives as long as this does, or until there is nothing left to do.
//
// The end of the process waits for the bit that is being done, because exit handlers of
// drivers take away what it uses, and keeps the next one from being begun.
class Background {
 public:
  // `next` does a bit, and returns whether there are more; it may ask is_stopped().
  // What it throws ends the work. `driver` names whose exit handlers have to wait.
  Background(const std::string& driver,
             std::function<bool(const Background& self)> next);
  // Waits for the bit that is being done.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  bool is_stopped() const;
  bool is_done() const { return is_done_.load(std::memory_order_acquire); }

 private:
  void run() noexcept;

  std::function<bool(const Background& self)> next_;
  std::atomic<bool> is_stopped_{false};
  std::atomic<bool> is_done_{false};
  std::thread thread_;
};

}  // namespace etwgpu
