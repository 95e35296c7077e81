/* Delivers the signal that CPUPROFILESIGNAL names to itself: two profiles, one after the other. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Whether the profiler's thread is there, as it is while a profile is recorded. */
static int is_recorded(void) {
  int is = 0;
  DIR *threads = opendir("/proc/self/task");
  for (struct dirent *entry; (entry = readdir(threads)) != NULL;) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
    FILE *file = fopen(path, "r");
    if (file == NULL) continue;
    if (fgets(name, sizeof name, file) != NULL) is |= strcmp(name, "sigprof\n") == 0;
    fclose(file);
  }
  closedir(threads);
  return is;
}

__attribute__((noinline)) void hot(void) {
  static volatile unsigned long sink;
  clock_t end = clock() + CLOCKS_PER_SEC / 10;
  while (clock() < end)
    for (int i = 0; i < 10000; i++) sink += i * sink;
}

int main(void) {
  for (int i = 0; i < 2; i++) {
    raise(SIGUSR2);
    while (!is_recorded()) usleep(1000);
    hot();
    raise(SIGUSR2);
    while (is_recorded()) usleep(1000);
  }
  return 0;
}
