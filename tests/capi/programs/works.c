/*
 * Prints its id, works until it has used as many milliseconds of CPU time as its first argument
 * says, and then executes itself, as a child, as often as the second says.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) void hot(long ms) {
  static volatile unsigned long sink;
  struct timespec begun, now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
  do {
    for (int i = 0; i < 10000; i++) sink += i * sink;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  } while ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 < ms);
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  printf("%d\n", (int)getpid());
  fflush(stdout);
  hot(atol(argv[1]));
  for (int i = atoi(argv[2]); i > 0; i--) {
    pid_t child = fork();
    if (child == 0) {
      execl("/proc/self/exe", argv[0], argv[1], "0", (char *)NULL);
      _exit(3);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) return 4;
  }
  return 0;
}
