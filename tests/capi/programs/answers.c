/* What the C library's locks answer where they are used wrongly, abandoned, or not had in time, a
   line a call: value and errno. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SAY(call)                                                       \
  do {                                                                  \
    errno = 77;                                                         \
    long answer_ = (long)(call);                                        \
    int errno_ = errno;                                                 \
    printf("%-60s = %ld, errno %d\n", #call, answer_, errno_);          \
  } while (0)

static const struct timespec past = {1, 0}, invalid = {0, 2000000000}, negative = {-1, 0};
static const clockid_t no_clock = 99;

static void *of_another_thread(void *mutex) {
  SAY(pthread_mutex_unlock(mutex));
  SAY(pthread_mutex_timedlock(mutex, &past));
  SAY(pthread_mutex_timedlock(mutex, &invalid));
  SAY(pthread_mutex_timedlock(mutex, &negative));
  SAY(pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &past));
  SAY(pthread_mutex_clocklock(mutex, no_clock, &past));
  return NULL;
}

static void *abandons(void *mutex) {
  SAY(pthread_mutex_lock(mutex));
  return NULL;
}

static void *locks(void *mutex) {
  SAY(pthread_mutex_lock(mutex));
  return NULL;
}

static void in_another_thread(void *(*work)(void *), void *argument) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, work, argument) != 0) _exit(1);
  if (pthread_join(thread, NULL) != 0) _exit(1);
}

static void mutexes(void) {
  static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER, checking, recursive, inheriting;
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
  pthread_mutex_init(&checking, &kind);
  pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&recursive, &kind);
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
  pthread_mutex_init(&inheriting, &kind);

  puts("a free one");
  SAY(pthread_mutex_timedlock(&normal, &invalid));
  SAY(pthread_mutex_unlock(&normal));
  SAY(pthread_mutex_timedlock(&normal, &past));
  SAY(pthread_mutex_unlock(&normal));
  SAY(pthread_mutex_clocklock(&normal, no_clock, &past));
  SAY(pthread_mutex_trylock(&normal));
  SAY(pthread_mutex_unlock(&normal));

  puts("one that checks");
  SAY(pthread_mutex_unlock(&checking));
  SAY(pthread_mutex_lock(&checking));
  SAY(pthread_mutex_lock(&checking));
  SAY(pthread_mutex_timedlock(&checking, &past));
  SAY(pthread_mutex_timedlock(&checking, &invalid));
  in_another_thread(of_another_thread, &checking);
  SAY(pthread_mutex_unlock(&checking));

  puts("a recursive one");
  SAY(pthread_mutex_lock(&recursive));
  SAY(pthread_mutex_lock(&recursive));
  in_another_thread(of_another_thread, &recursive);
  SAY(pthread_mutex_unlock(&recursive));
  SAY(pthread_mutex_unlock(&recursive));
  SAY(pthread_mutex_unlock(&recursive));

  puts("one that inherits priorities");
  SAY(pthread_mutex_timedlock(&inheriting, &invalid));
  SAY(pthread_mutex_unlock(&inheriting));
  SAY(pthread_mutex_lock(&inheriting));
  in_another_thread(of_another_thread, &inheriting);
  SAY(pthread_mutex_unlock(&inheriting));
}

static void robust_mutexes(void) {
  static pthread_mutex_t mutex, mended;
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex, &kind);
  pthread_mutex_init(&mended, &kind);

  puts("one whose owner has ended, made consistent");
  in_another_thread(abandons, &mended);
  SAY(pthread_mutex_timedlock(&mended, &past));
  SAY(pthread_mutex_consistent(&mended));
  SAY(pthread_mutex_unlock(&mended));
  SAY(pthread_mutex_lock(&mended));
  SAY(pthread_mutex_unlock(&mended));

  puts("one whose owner has ended, left so");
  in_another_thread(abandons, &mutex);
  SAY(pthread_mutex_lock(&mutex));
  SAY(pthread_mutex_unlock(&mutex));
  SAY(pthread_mutex_lock(&mutex));
  SAY(pthread_mutex_timedlock(&mutex, &past));
  in_another_thread(locks, &mutex);
}

static void rwlocks(void) {
  pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
  puts("an rwlock that is free");
  SAY(pthread_rwlock_timedrdlock(&rwlock, &invalid));
  SAY(pthread_rwlock_trywrlock(&rwlock));
  pthread_rwlock_init(&rwlock, NULL);
  SAY(pthread_rwlock_timedwrlock(&rwlock, &invalid));
  SAY(pthread_rwlock_tryrdlock(&rwlock));
  pthread_rwlock_init(&rwlock, NULL);
  SAY(pthread_rwlock_clockrdlock(&rwlock, no_clock, &past));
  pthread_rwlock_init(&rwlock, NULL);
  SAY(pthread_rwlock_clockwrlock(&rwlock, no_clock, &past));
  pthread_rwlock_init(&rwlock, NULL);

  puts("an rwlock that is written");
  SAY(pthread_rwlock_clockwrlock(&rwlock, CLOCK_MONOTONIC, &past));
  SAY(pthread_rwlock_wrlock(&rwlock));
  SAY(pthread_rwlock_rdlock(&rwlock));
  SAY(pthread_rwlock_timedrdlock(&rwlock, &past));
  SAY(pthread_rwlock_unlock(&rwlock));

  puts("an rwlock that is read");
  SAY(pthread_rwlock_rdlock(&rwlock));
  SAY(pthread_rwlock_rdlock(&rwlock));
  SAY(pthread_rwlock_timedwrlock(&rwlock, &past));
  SAY(pthread_rwlock_unlock(&rwlock));
  SAY(pthread_rwlock_unlock(&rwlock));
}

static void does_nothing(int number) { (void)number; }

/* Has a signal come every 10 ms: the first one may come before the wait. */
static void interrupt_with(int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = does_nothing;
  action.sa_flags = flags;
  sigaction(SIGALRM, &action, NULL);
  struct itimerval each = {{0, 10000}, {0, 10000}};
  setitimer(ITIMER_REAL, &each, NULL);
}

static int value_of(sem_t *semaphore) {
  int value;
  sem_getvalue(semaphore, &value);
  return value;
}

static void semaphores(void) {
  sem_t semaphore;
  sem_init(&semaphore, 0, 1);
  puts("a semaphore that can be had");
  SAY(sem_timedwait(&semaphore, &invalid));
  SAY(value_of(&semaphore));
  sem_init(&semaphore, 0, 1);
  SAY(sem_clockwait(&semaphore, no_clock, &past));
  SAY(value_of(&semaphore));
  sem_init(&semaphore, 0, 1);
  SAY(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &invalid));
  SAY(value_of(&semaphore));
  sem_init(&semaphore, 0, 1);
  SAY(sem_wait(&semaphore));

  puts("a semaphore that cannot be had");
  SAY(sem_timedwait(&semaphore, &past));
  SAY(sem_timedwait(&semaphore, &invalid));
  SAY(sem_clockwait(&semaphore, no_clock, &past));
  interrupt_with(0);
  SAY(sem_wait(&semaphore));
  interrupt_with(SA_RESTART);
  struct timespec later;
  clock_gettime(CLOCK_REALTIME, &later);
  later.tv_sec++;
  SAY(sem_timedwait(&semaphore, &later));
  setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
  SAY(sem_post(&semaphore));
}

static void condvars(void) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
  puts("a condition variable");
  SAY(pthread_mutex_lock(&mutex));
  SAY(pthread_cond_timedwait(&condvar, &mutex, &past));
  SAY(pthread_cond_timedwait(&condvar, &mutex, &invalid));
  SAY(pthread_cond_clockwait(&condvar, &mutex, no_clock, &past));
  SAY(pthread_cond_clockwait(&condvar, &mutex, CLOCK_MONOTONIC, &past));
  SAY(pthread_mutex_unlock(&mutex));
  SAY(pthread_cond_signal(&condvar));
  SAY(pthread_cond_broadcast(&condvar));
}

static void futexes(void) {
  uint32_t word = 1, other = 1;
  struct timespec for_a_moment = {0, 1000000};
  puts("futexes");
  SAY(syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL));
  SAY(syscall(SYS_futex, &word, FUTEX_WAIT, 1, &for_a_moment));
  SAY(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, 1, &past, NULL, -1));
  SAY(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, 1, &past, NULL, 0));
  SAY(syscall(SYS_futex, NULL, FUTEX_WAIT, 1, &for_a_moment));
  SAY(syscall(SYS_futex, (char *)&word + 1, FUTEX_WAIT, 1, &for_a_moment));
  SAY(syscall(SYS_futex, &word, FUTEX_WAKE, 1));
  SAY(syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE, 1, 1L, &other, 1));
  SAY(syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE, 1, 1L, &other, 2));
  int add_one = FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 1);
  SAY(syscall(SYS_futex, &word, FUTEX_WAKE_OP, 1, 1L, &other, add_one));
  SAY(other);
  word = gettid();
  SAY(syscall(SYS_futex, &word, FUTEX_LOCK_PI, 0, NULL));
  word = 0;
  SAY(syscall(SYS_futex, &word, FUTEX_LOCK_PI, 0, NULL));
  SAY(word == (uint32_t)gettid());
  SAY(syscall(SYS_futex, &word, FUTEX_UNLOCK_PI));
  SAY(syscall(SYS_futex, &word, FUTEX_UNLOCK_PI));
  SAY(syscall(SYS_futex, &word, 99));

  puts("other calls, with six arguments and with none");
  SAY(syscall(SYS_splice, -1, NULL, -1, NULL, 7L, 0));
  SAY(syscall(SYS_getpid) == getpid());
  SAY(syscall(SYS_gettid) == gettid());
  SAY(syscall(-1L));
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  mutexes();
  robust_mutexes();
  rwlocks();
  semaphores();
  condvars();
  futexes();
}
