/*
 * Prints its id, works until it has used as many milliseconds of CPU time as its first argument
 * says, and then executes itself, as a child, as often as the second says.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hot.h"

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
