// Whose turn it is to use a device.
//
// A call of the driver may take seconds: compiling a kernel does, and a submit may wait
// for one. Such a call is made by another thread, and the caller may leave it, as
// Ctrl-C does; it then keeps the device until it has returned. So nobody else has to
// wait inside the driver, where no signal is noticed, and no error of it is reported
// to another's error scope: scopes belong to the device, not to a thread.

#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace etwgpu {

// What the thread that makes calls holds meanwhile, so that the end of the process
// waits for it; throws if no call may be made any more.
using Permit = std::shared_ptr<const void> (*)();

// Recursive, because Python takes it again where C++ holds it.
class DeviceMutex {
 public:
  explicit DeviceMutex(Permit permit = nullptr);
  ~DeviceMutex();
  bool try_lock_for(std::chrono::milliseconds time);
  // Also while calls go on, which objects may be freed beside.
  bool try_hold_for(std::chrono::milliseconds time);
  void unlock() { mutex_.unlock(); }

  // Whether somebody waits for it. Who takes it again and again has to ask: a mutex may
  // go to whoever comes first, and that is who has just let it go.
  bool is_wanted() const { return waiting_.load(std::memory_order_relaxed) > 0; }

  // Makes `call` in another thread, and returns or throws when it does. If `check`,
  // which is called now and then, throws, so does this, and the call goes on by itself:
  // what it uses must be its own. The caller holds the mutex, as it does in start().
  void run(std::function<void()> call, const std::function<void()>& check);

  // Has `call` made after those that go on, and leaves it at once.
  void start(std::function<void()> call);

 private:
  struct Calls;

  std::recursive_timed_mutex mutex_;
  std::atomic<int> waiting_{0};
  std::shared_ptr<Calls> calls_;  // shared with the thread that makes them
  std::thread thread_;
};

}  // namespace etwgpu
