/* An allocator whose locks are the C library's, as most have them, in a process that loads the
   profiler late: own_malloc LIBRARY. A signal that comes in the allocator posts a semaphore. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sleeps.h"

/* The C library's own, by the names that it keeps for itself. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

#define LOCKED(call)                     \
  do {                                   \
    CHECK(pthread_mutex_lock(&mutex) == 0);   \
    call;                                \
    CHECK(pthread_mutex_unlock(&mutex) == 0); \
  } while (0)

void *malloc(size_t size) {
  void *block;
  LOCKED(block = __libc_malloc(size));
  return block;
}

void *calloc(size_t count, size_t size) {
  void *block;
  LOCKED(block = __libc_calloc(count, size));
  return block;
}

void *realloc(void *block, size_t size) {
  LOCKED(block = __libc_realloc(block, size));
  return block;
}

void free(void *block) { LOCKED(__libc_free(block)); }

static sem_t semaphore;
static atomic_int is_over, waiter_tid;

static void posts(int number) {
  (void)number;
  int before = errno;
  CHECK(sem_post(&semaphore) == 0);
  errno = before;
}

static void *waits(void *nothing) {
  waiter_tid = gettid();
  while (!is_over)
    while (sem_wait(&semaphore) != 0) CHECK(errno == EINTR);
  return nothing;
}

static void *allocates(void *begun) {
  void *blocks[64] = {NULL};
  unsigned i = 0;
  while (!is_over) {
    unsigned k = i++ % 64;
    free(blocks[k]);
    blocks[k] = malloc(3000 + i % 7000);
    *(atomic_int *)begun = 1;
  }
  for (i = 0; i < 64; i++) free(blocks[i]);
  return NULL;
}

int main(int count, char **arguments) {
  enum { THREADS = 4, ROUNDS = 20, SIGNALS = 20 };
  CHECK(count == 2 && sem_init(&semaphore, 0, 0) == 0);
  CHECK(signal(SIGUSR1, posts) != SIG_ERR);
  if (dlopen(arguments[1], RTLD_NOW) == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  /* Threads that begin to wait have waited never before. */
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t waiter, threads[THREADS];
    atomic_int begun[THREADS] = {0};
    is_over = waiter_tid = 0;
    CHECK(pthread_create(&waiter, NULL, waits, NULL) == 0);
    while (waiter_tid == 0 || !sleeps(waiter_tid)) usleep(100);
    for (int i = 0; i < THREADS; i++)
      CHECK(pthread_create(&threads[i], NULL, allocates, &begun[i]) == 0);
    for (int i = 0; i < THREADS; i++)
      while (!begun[i]) sched_yield();
    for (int i = 0; i < SIGNALS; i++) {
      CHECK(pthread_kill(threads[i % THREADS], SIGUSR1) == 0);
      usleep(100);
    }
    is_over = 1;
    CHECK(sem_post(&semaphore) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(pthread_join(waiter, NULL) == 0);
  }
  puts("done");
}
