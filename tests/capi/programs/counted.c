/* Locks a mutex a thousand times, in one thread, with `interposes.c` in front. */
#include <pthread.h>

extern void say_what_was_counted(void);

int main(void) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  for (int i = 0; i < 1000; i++) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
  }
  say_what_was_counted();
}
