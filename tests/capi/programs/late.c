/*
 * Loads libraries one after the other, and works after each: late LIBRARY... What fails to load is
 * printed with the reason.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "hot.h"

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (dlopen(argv[i], RTLD_NOW) == NULL) {
      printf("%s\n", dlerror());
      continue;
    }
    hot(200);
  }
  return 0;
}
