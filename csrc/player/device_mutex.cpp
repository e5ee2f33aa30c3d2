#include "player/device_mutex.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <utility>

namespace etwgpu {

struct DeviceMutex::Calls {
  explicit Calls(Permit given) : permit(given) {}

  const Permit permit;
  std::mutex mutex;
  std::condition_variable changed;
  bool is_running = false;
  std::deque<std::function<void()>> waiting;
  std::exception_ptr thrown;  // by the last one

  bool wait(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds time) {
    return changed.wait_for(lock, time, [this] { return !is_running; });
  }

  void make_all() noexcept {
    // Held to the end: exit handlers of drivers take away what the calls use.
    std::shared_ptr<const void> permitted;
    std::exception_ptr refusal;
    try {
      permitted = permit == nullptr ? nullptr : permit();
    } catch (...) {
      refusal = std::current_exception();
    }
    std::unique_lock<std::mutex> lock(mutex);
    while (!waiting.empty()) {
      std::function<void()> call = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      std::exception_ptr caught;
      try {
        if (refusal) {
          std::rethrow_exception(refusal);
        }
        call();
      } catch (...) {
        caught = std::current_exception();
      }
      call = nullptr;  // and what it holds, while the device is still its own
      lock.lock();
      thrown = std::move(caught);
    }
    is_running = false;
    changed.notify_all();
  }
};

DeviceMutex::DeviceMutex(Permit permit) : calls_(std::make_shared<Calls>(permit)) {}

DeviceMutex::~DeviceMutex() {
  if (thread_.joinable()) {
    thread_.detach();
  }
}

bool DeviceMutex::try_hold_for(std::chrono::milliseconds time) {
  waiting_.fetch_add(1, std::memory_order_relaxed);
  const bool is_held = mutex_.try_lock_for(time);
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  return is_held;
}

bool DeviceMutex::try_lock_for(std::chrono::milliseconds time) {
  if (!try_hold_for(time)) {
    return false;
  }
  std::unique_lock<std::mutex> lock(calls_->mutex);
  if (calls_->wait(lock, time)) {
    return true;
  }
  mutex_.unlock();
  return false;
}

void DeviceMutex::run(std::function<void()> call, const std::function<void()>& check) {
  constexpr std::chrono::milliseconds kPeriod(50);
  start(std::move(call));
  std::unique_lock<std::mutex> lock(calls_->mutex);
  while (!calls_->wait(lock, kPeriod)) {
    lock.unlock();
    check();
    lock.lock();
  }
  if (calls_->thrown) {
    std::rethrow_exception(std::exchange(calls_->thrown, nullptr));
  }
}

void DeviceMutex::start(std::function<void()> call) {
  const std::lock_guard<std::mutex> lock(calls_->mutex);
  if (!calls_->is_running) {
    if (thread_.joinable()) {
      thread_.join();
    }
    thread_ = std::thread([calls = calls_] { calls->make_all(); });
    calls_->is_running = true;
  }
  calls_->waiting.push_back(std::move(call));
}

}  // namespace etwgpu
