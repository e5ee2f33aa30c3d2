#include "player/background.h"

#include "player/process.h"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace etwgpu {
namespace {

// Bits that are being done, and whether the process ends. Never destroyed: threads may
// use it while it does.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> is_closed{false};
  size_t inside = 0;
  std::set<std::string> drivers;  // whose exit handlers wait
};

Gate& gate() {
  static auto* instance = new Gate();
  return *instance;
}

void close_gate() {
  // A driver that hangs must not keep the process from ending.
  constexpr std::chrono::seconds kPatience(60);
  if (is_forked()) {
    return;  // the threads, and who holds the mutex, are another process's
  }
  std::unique_lock<std::mutex> lock(gate().mutex);
  gate().is_closed = true;
  gate().changed.wait_for(lock, kPatience, [] { return gate().inside == 0; });
}

// What is registered last is called first: this has to come behind the driver's own.
void watch_exit(const std::string& driver) {
  const std::lock_guard<std::mutex> lock(gate().mutex);
  if (gate().drivers.insert(driver).second) {
    (void)std::atexit(&close_gate);
  }
}

// A bit's stay inside the gate; false if that is closed.
class Stay {
 public:
  Stay() {
    const std::lock_guard<std::mutex> lock(gate().mutex);
    is_open_ = !gate().is_closed;
    gate().inside += is_open_ ? 1 : 0;
  }
  ~Stay() {
    const std::lock_guard<std::mutex> lock(gate().mutex);
    gate().inside -= is_open_ ? 1 : 0;
    gate().changed.notify_all();
  }
  Stay(const Stay&) = delete;
  Stay& operator=(const Stay&) = delete;
  explicit operator bool() const { return is_open_; }

 private:
  bool is_open_ = false;
};

}  // namespace

Background::Background(const std::string& driver,
                       std::function<bool(const Background& self)> next)
    : next_(std::move(next)) {
  watch_exit(driver);
  thread_ = std::thread([this] { run(); });
}

Background::~Background() {
  is_stopped_ = true;
  thread_.join();
}

bool Background::is_stopped() const { return is_stopped_ || gate().is_closed; }

void Background::run() noexcept {
  try {
    for (bool has_more = true; has_more && !is_stopped_;) {
      const Stay stay;
      has_more = stay && next_(*this);
    }
  } catch (const std::exception&) {
    // Whoever needs what is missing does it, and is told what is wrong.
  }
  is_done_.store(true, std::memory_order_release);
}

}  // namespace etwgpu
