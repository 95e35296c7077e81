/*
 * Works in four functions, of which two are called by one and two by another, for as many
 * milliseconds of CPU time as its argument says, and prints how many nanoseconds each has used.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile unsigned long sink;

#define WORKS(name)                                               \
  __attribute__((noinline)) void name(long turns) {               \
    for (long turn = 0; turn < turns; turn++) sink += turn * sink; \
  }

WORKS(sixty)
WORKS(twenty_five)
WORKS(ten)
WORKS(five)

static long used[4];

static long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

__attribute__((noinline)) void more(long turns) {
  long begun = now();
  sixty(60 * turns);
  long between = now();
  twenty_five(25 * turns);
  used[0] += between - begun;
  used[1] += now() - between;
}

__attribute__((noinline)) void less(long turns) {
  long begun = now();
  ten(10 * turns);
  long between = now();
  five(5 * turns);
  used[2] += between - begun;
  used[3] += now() - between;
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  long end = now() + atol(argv[1]) * 1000000;
  /* Turns of lengths that vary, so that no tick falls into step with them. */
  for (long round = 1; now() < end; round = round * 16807 % 2147483647) {
    long turns = 500 + round % 1000;
    more(turns);
    less(turns);
  }
  printf("%ld %ld %ld %ld\n", used[0], used[1], used[2], used[3]);
  return 0;
}
