/*
 * Records itself for a file while so many threads work in two functions: threads FILE N. The first
 * thread is the main one.
 */
#include <gperftools/profiler.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define WORKS(name)                                                               \
  __attribute__((noinline)) void name(void) {                                     \
    static volatile unsigned long sink;                                           \
    struct timespec begun, now;                                                   \
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);                               \
    do {                                                                          \
      for (int i = 0; i < 10000; i++) sink += i * sink;                           \
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);                               \
    } while ((now.tv_sec - begun.tv_sec) * 1000000000 + now.tv_nsec - begun.tv_nsec \
             < 50000000);                                                         \
  }

WORKS(first_function)
WORKS(second_function)

static void *works(void *argument) {
  first_function();
  second_function();
  return argument;
}

int main(int argc, char **argv) {
  pthread_t threads[16];
  int n = argc == 3 ? atoi(argv[2]) : 0;
  if (n < 1 || n > 16 || !ProfilerStart(argv[1])) {
    perror("ProfilerStart");
    return 1;
  }
  for (int i = 1; i < n; i++)
    if (pthread_create(&threads[i], NULL, works, NULL) != 0) return 2;
  works(NULL);
  for (int i = 1; i < n; i++) pthread_join(threads[i], NULL);
  ProfilerStop();
  return 0;
}
