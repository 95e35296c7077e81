/* What ends a program that has not come to what it should. Not through the C library's streams: a
   child may have those of its parent. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      dprintf(2, "line %d: not %s, errno %d\n", __LINE__, #condition, errno); \
      _exit(1);                                                               \
    }                                                                         \
  } while (0)
