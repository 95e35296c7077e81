/* Whether a thread of this process sleeps. */
#include <stdio.h>
#include <string.h>

#include "check.h"

static int sleeps(int tid) {
  char name[64], stat[512] = "";
  snprintf(name, sizeof name, "/proc/self/task/%d/stat", tid);
  FILE *file = fopen(name, "r");
  CHECK(file != NULL && fgets(stat, sizeof stat, file) != NULL && fclose(file) == 0);
  return strstr(stat, ") S ") != NULL;
}
