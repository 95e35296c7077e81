/* Waits for a condition variable through the functions of the C library's first version, whose
   condition variables are made otherwise than today's. */
#include <pthread.h>
#include <stdio.h>

__asm__(".symver pthread_cond_wait, pthread_cond_wait@GLIBC_2.2.5");
__asm__(".symver pthread_cond_signal, pthread_cond_signal@GLIBC_2.2.5");
__asm__(".symver pthread_cond_init, pthread_cond_init@GLIBC_2.2.5");
__asm__(".symver pthread_cond_destroy, pthread_cond_destroy@GLIBC_2.2.5");

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condvar;
static int turn;

static void set_turn(int number) {
  turn = number;
  pthread_cond_signal(&condvar);
}

static void wait_for_turn(int number) {
  while (turn != number) pthread_cond_wait(&condvar, &mutex);
}

static void *other(void *rounds) {
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < *(int *)rounds; i++) {
    wait_for_turn(1);
    set_turn(0);
  }
  pthread_mutex_unlock(&mutex);
  return NULL;
}

int main(void) {
  int rounds = 1000;
  pthread_t thread;
  pthread_cond_init(&condvar, NULL);
  pthread_create(&thread, NULL, other, &rounds);
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < rounds; i++) {
    set_turn(1);
    wait_for_turn(0);
  }
  pthread_mutex_unlock(&mutex);
  pthread_join(thread, NULL);
  pthread_cond_destroy(&condvar);
  printf("%d rounds\n", rounds);
}
