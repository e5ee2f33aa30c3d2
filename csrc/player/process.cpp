#include "player/process.h"

#include "player/failure.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#ifndef _WIN32
#include <pthread.h>
#include <unistd.h>
#endif

namespace etwgpu {
namespace {

std::atomic<bool> g_is_open{false};
std::atomic<bool> g_is_forked{false};

#ifdef __GLIBC__
// Mesa's exit handler joins threads that only the parent has, which ends in a hang or
// in SIGSEGV; being the last one registered, this one comes before it.
void leave(int status, void*) {
  std::cout.flush();
  std::cerr.flush();
  (void)std::fflush(nullptr);
  _exit(status);
}
#endif

}  // namespace

void open_gpu() {
  check_process();
  g_is_open = true;
}

void check_process() {
  if (is_forked()) {
    throw Failure(
        Code::InvalidState,
        "the GPU must be used by the process that opened it, got a fork of it;"
        " start workers with spawn or forkserver, or load methods in the"
        " workers only");
  }
}

bool is_forked() { return g_is_forked.load(std::memory_order_relaxed); }

void after_fork() {
  if (g_is_open && !g_is_forked.exchange(true)) {
#ifdef __GLIBC__
    (void)on_exit(&leave, nullptr);
#endif
  }
}

void watch_forks() {
#ifndef _WIN32
  static const int registered = pthread_atfork(nullptr, nullptr, &after_fork);
  (void)registered;
#endif
}

}  // namespace etwgpu
