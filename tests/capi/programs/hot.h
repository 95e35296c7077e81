/* What the tests' programs spend their time in, by this name. */
#include <time.h>

/* Works for as many milliseconds of the calling thread's CPU time. */
__attribute__((noinline)) static void hot(long ms) {
  static volatile unsigned long sink;
  struct timespec begun, now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
  do {
    for (int i = 0; i < 10000; i++) sink += i * sink;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  } while ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 < ms);
}
