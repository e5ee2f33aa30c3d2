// Uses what csrc/compat/glibc.cpp has instead of the system's: waits that end and waits
// that are woken, copies of exceptions. Prints "right", or fails.

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kShort(50);
constexpr std::chrono::seconds kLong(60);

void check(bool is_right, const char* what) {
  if (is_right) return;
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

void wait_for_condition() {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_set = false;
  std::unique_lock<std::mutex> lock(mutex);
  const auto start = Clock::now();
  check(!changed.wait_for(lock, kShort, [&] { return is_set; }), "nobody set it");
  check(Clock::now() - start >= kShort, "it must wait");
  check(Clock::now() - start < kLong, "it must not wait for ever");
  std::thread other([&] {
    const std::lock_guard<std::mutex> held(mutex);
    is_set = true;
    changed.notify_all();
  });
  check(changed.wait_for(lock, kLong, [&] { return is_set; }), "it was set");
  check(Clock::now() - start < kLong, "a wait must be woken");
  lock.unlock();
  other.join();
}

void wait_for_mutex() {
  std::recursive_timed_mutex mutex;
  mutex.lock();
  bool has_it = true;
  const auto start = Clock::now();
  std::thread([&] { has_it = mutex.try_lock_for(kShort); }).join();
  check(!has_it && Clock::now() - start >= kShort, "a held mutex must be waited for");
  mutex.unlock();
  std::thread([&] {
    has_it = mutex.try_lock_for(kLong);
    if (has_it) mutex.unlock();
  }).join();
  check(has_it, "a free mutex must be taken");
}

struct Counted : std::runtime_error {
  explicit Counted(std::shared_ptr<int> value)
      : std::runtime_error("counted"), value(std::move(value)) {}
  std::shared_ptr<int> value;
};

void copy_exceptions() {
  const auto value = std::make_shared<int>(7);
  {
    std::exception_ptr first = std::make_exception_ptr(Counted(value));
    std::exception_ptr second = first;
    std::exception_ptr third;
    third = second;
    first = nullptr;
    second = nullptr;
    check(value.use_count() == 2, "a copy must keep the exception");
    try {
      std::rethrow_exception(third);
    } catch (const Counted& caught) {
      check(*caught.value == 7, "a copy must be the exception");
    }
  }
  check(value.use_count() == 1, "the last copy must free it");
}

}  // namespace

int main() {
  wait_for_condition();
  wait_for_mutex();
  copy_exceptions();
  check(dlsym(RTLD_DEFAULT, "printf") != nullptr, "printf must be found");
  check(dlopen("no such library", RTLD_NOW) == nullptr, "there is no such library");
  check(dlerror() != nullptr, "and an error");
  std::printf("right\n");
}
