/*
 * Loads libraries one after the other, and works after each: late LIBRARY... What fails to load is
 * printed with the reason.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

__attribute__((noinline)) static void hot(void) {
  static volatile unsigned long sink;
  struct timespec begun, now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
  do {
    for (int i = 0; i < 10000; i++) sink += i * sink;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  } while ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 < 200);
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (dlopen(argv[i], RTLD_NOW) == NULL) {
      printf("%s\n", dlerror());
      continue;
    }
    hot();
  }
  return 0;
}
