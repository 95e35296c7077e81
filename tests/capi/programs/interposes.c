/* A library of somebody else's that stands in front of the C library's mutexes, and counts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static long locks, unlocks;

static int call(const char *name, pthread_mutex_t *mutex) {
  int (*function)(pthread_mutex_t *);
  void *address = dlsym(RTLD_NEXT, name);
  memcpy(&function, &address, sizeof function);
  return function(mutex);
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
  locks++;
  return call("pthread_mutex_lock", mutex);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
  unlocks++;
  return call("pthread_mutex_unlock", mutex);
}

void say_what_was_counted(void) { printf("%ld locks, %ld unlocks\n", locks, unlocks); }
