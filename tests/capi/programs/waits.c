/* A library that waits for a thread while it is loaded, as some do that start workers. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void *fills(void *argument) {
  memset(argument, 1, 1000);
  return argument;
}

__attribute__((constructor)) static void starts(void) {
  pthread_t thread;
  void *memory = malloc(1000);
  if (memory == NULL || pthread_create(&thread, NULL, fills, memory) != 0) abort();
  if (pthread_join(thread, NULL) != 0) abort();
  free(memory);
}
