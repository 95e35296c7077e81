/* Threads that keep others waiting, and threads that only seem to: holders CASE. Prints how long
   the waits took in all, in nanoseconds, by the clocks of those who waited. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sleeps.h"

static pthread_mutex_t mutex;
static atomic_llong waited;

static long long now(void) {
  struct timespec time;
  CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

struct waiter {
  pthread_t thread;
  atomic_int tid;
};

static void *waits(void *of) {
  struct waiter *waiter = of;
  long long from = now();
  /* From here on it sleeps for the mutex alone. */
  waiter->tid = gettid();
  CHECK(pthread_mutex_lock(&mutex) == 0);
  waited += now() - from;
  CHECK(pthread_mutex_unlock(&mutex) == 0);
  return NULL;
}

/* Begins it, and waits until it waits. */
static void begin(struct waiter *waiter) {
  waiter->tid = 0;
  CHECK(pthread_create(&waiter->thread, NULL, waits, waiter) == 0);
  while (waiter->tid == 0 || !sleeps(waiter->tid)) usleep(100);
}

static void make_mutex(int type) {
  pthread_mutexattr_t kind;
  CHECK(pthread_mutexattr_init(&kind) == 0 && pthread_mutexattr_settype(&kind, type) == 0);
  CHECK(pthread_mutex_init(&mutex, &kind) == 0);
}

__attribute__((noinline)) static void inner(void) {
  CHECK(pthread_mutex_lock(&mutex) == 0);
  usleep(1000);
  CHECK(pthread_mutex_unlock(&mutex) == 0);
}

/* Who lets go of a recursive mutex that it still holds ends nobody's wait. */
__attribute__((noinline)) static void holds_twice(void) {
  struct waiter waiter;
  make_mutex(PTHREAD_MUTEX_RECURSIVE);
  CHECK(pthread_mutex_lock(&mutex) == 0);
  begin(&waiter);
  for (int i = 0; i < 20; i++) inner();
  CHECK(pthread_mutex_unlock(&mutex) == 0);
  CHECK(pthread_join(waiter.thread, NULL) == 0);
}

__attribute__((noinline)) static void *bystander(void *nothing) {
  CHECK(pthread_mutex_unlock(&mutex) == EPERM);
  return nothing;
}

/* Who may not let go of a mutex ends nobody's wait. */
__attribute__((noinline)) static void is_bystood(void) {
  struct waiter waiter;
  pthread_t other;
  make_mutex(PTHREAD_MUTEX_ERRORCHECK);
  CHECK(pthread_mutex_lock(&mutex) == 0);
  begin(&waiter);
  CHECK(pthread_create(&other, NULL, bystander, NULL) == 0);
  CHECK(pthread_join(other, NULL) == 0);
  CHECK(pthread_mutex_unlock(&mutex) == 0);
  CHECK(pthread_join(waiter.thread, NULL) == 0);
}

/* More threads than the tables of those who wait have room for, at one lock. */
__attribute__((noinline)) static void keeps_a_crowd(void) {
  enum { CROWD = 150 };
  static struct waiter waiters[CROWD];
  make_mutex(PTHREAD_MUTEX_NORMAL);
  CHECK(pthread_mutex_lock(&mutex) == 0);
  for (int i = 0; i < CROWD; i++) begin(&waiters[i]);
  CHECK(pthread_mutex_unlock(&mutex) == 0);
  for (int i = 0; i < CROWD; i++) CHECK(pthread_join(waiters[i].thread, NULL) == 0);
}

int main(int count, char **arguments) {
  const char *name = count == 2 ? arguments[1] : "";
  if (strcmp(name, "holds_twice") == 0) holds_twice();
  else if (strcmp(name, "is_bystood") == 0) is_bystood();
  else if (strcmp(name, "keeps_a_crowd") == 0) keeps_a_crowd();
  else return 2;
  printf("%lld\n", (long long)waited);
}
