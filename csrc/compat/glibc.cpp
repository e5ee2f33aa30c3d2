// What a library that is compiled on a newer Linux would need of it, for systems as old
// as manylinux_2_28 (glibc 2.28, the libstdc++ of GCC 8).
//
// Enters: references of this library's other objects, which the linker resolves here.
// Leaves: calls of what every such system has. Hidden, so that nobody else's calls
// change; weak, so that a toolchain's own substitutes win. Empty where glibc itself is
// old. setup.py knows the systems that it is for.

#include <features.h>

#if __GLIBC_PREREQ(2, 29)

#include <pthread.h>
#include <time.h>

// The version that all symbols have that glibc had from the beginning.
#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#else  // aarch64
#define OLDEST "GLIBC_2.17"
#endif

#define HERE(name) __asm__(name) __attribute__((visibility("hidden"), weak))
#define OLD(ours, name) __asm__(".symver " ours "," name "@" OLDEST)

extern "C" {

// 2.32. Whether a count of references may do without atomics: never.
extern char single_threaded HERE("__libc_single_threaded");
char single_threaded = 0;

// In libdl and libpthread until 2.34, which gave them a new version as it took them in.
OLD("old_dlopen", "dlopen");
OLD("old_dlsym", "dlsym");
OLD("old_dlerror", "dlerror");
OLD("old_dladdr", "dladdr");
OLD("old_pthread_once", "pthread_once");
OLD("old_mutex_timedlock", "pthread_mutex_timedlock");
void* old_dlopen(const char* path, int flags);
void* old_dlsym(void* library, const char* name);
char* old_dlerror();
int old_dladdr(const void* address, void* info);
int old_pthread_once(pthread_once_t* flag, void (*function)());
int old_mutex_timedlock(pthread_mutex_t* mutex, const timespec* when);

void* here_dlopen(const char* path, int flags) HERE("dlopen");
void* here_dlopen(const char* path, int flags) { return old_dlopen(path, flags); }
void* here_dlsym(void* library, const char* name) HERE("dlsym");
void* here_dlsym(void* library, const char* name) { return old_dlsym(library, name); }
char* here_dlerror() HERE("dlerror");
char* here_dlerror() { return old_dlerror(); }
int here_dladdr(const void* address, void* info) HERE("dladdr");
int here_dladdr(const void* address, void* info) { return old_dladdr(address, info); }
int here_pthread_once(pthread_once_t* flag, void (*function)()) HERE("pthread_once");
int here_pthread_once(pthread_once_t* flag, void (*function)()) {
  return old_pthread_once(flag, function);
}
}

namespace {

// The system's own, if it has one.
template <typename Function>
Function* newer(const char* name) {
  return reinterpret_cast<Function*>(old_dlsym(nullptr, name));
}

// The same moment by the clock that the older functions wait for.
timespec by_wall_clock(clockid_t clock, const timespec& when) {
  constexpr long kSecond = 1'000'000'000;
  timespec by_it{};
  timespec by_wall{};
  clock_gettime(clock, &by_it);
  clock_gettime(CLOCK_REALTIME, &by_wall);
  timespec moment{
      by_wall.tv_sec + (when.tv_sec - by_it.tv_sec),
      by_wall.tv_nsec + (when.tv_nsec - by_it.tv_nsec),
  };
  for (; moment.tv_nsec < 0; moment.tv_nsec += kSecond) moment.tv_sec -= 1;
  for (; moment.tv_nsec >= kSecond; moment.tv_nsec -= kSecond) moment.tv_sec += 1;
  return moment;
}

using CondWait = int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
using MutexLock = int(pthread_mutex_t*, clockid_t, const timespec*);

}  // namespace

extern "C" {

// 2.30. Waits for a moment of another clock than the wall's, which somebody may set.
CondWait here_cond_clockwait HERE("pthread_cond_clockwait");
int here_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                        clockid_t clock, const timespec* when) {
  static auto* const found = newer<CondWait>("pthread_cond_clockwait");
  if (found != nullptr) return found(condition, mutex, clock, when);
  const timespec moment = by_wall_clock(clock, *when);
  return pthread_cond_timedwait(condition, mutex, &moment);
}

MutexLock here_mutex_clocklock HERE("pthread_mutex_clocklock");
int here_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                         const timespec* when) {
  static auto* const found = newer<MutexLock>("pthread_mutex_clocklock");
  if (found != nullptr) return found(mutex, clock, when);
  const timespec moment = by_wall_clock(clock, *when);
  return old_mutex_timedlock(mutex, &moment);
}

// libstdc++ of GCC 11: what copies and destroys a std::exception_ptr, which is a
// pointer, inline. Before, these were its constructor and destructor, which are still
// there.
void copy_exception(void* to, const void* from) __asm__(
    "_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void drop_exception(void* pointer) __asm__("_ZNSt15__exception_ptr13exception_ptrD1Ev");

void here_add(void* pointer) HERE("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
void here_add(void* pointer) {
  void* copy = nullptr;  // never destroyed
  copy_exception(&copy, pointer);
}
void here_release(void* pointer)
    HERE("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void here_release(void* pointer) { drop_exception(pointer); }
}

#endif
