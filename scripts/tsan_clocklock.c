// For ThreadSanitizer, which sees pthread_mutex_timedlock but not its younger sibling,
// by which std::timed_mutex waits: without this it takes the holder of such a lock for
// one who has none.
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                            const struct timespec* end) {
  struct timespec now, until;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += end->tv_sec - now.tv_sec;
  until.tv_nsec += end->tv_nsec - now.tv_nsec;
  if (until.tv_nsec < 0) {
    until.tv_sec -= 1;
    until.tv_nsec += 1000000000;
  } else if (until.tv_nsec >= 1000000000) {
    until.tv_sec += 1;
    until.tv_nsec -= 1000000000;
  }
  return pthread_mutex_timedlock(mutex, &until);
}
