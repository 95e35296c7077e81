/* Starts a profile, spends its time in `hot` until enough samples are there, and stops. */
#include <gperftools/profiler.h>
#include <stdio.h>
#include <string.h>

static volatile unsigned long sink;

__attribute__((noinline)) void hot(void) {
  for (int i = 0; i < 100000; i++) sink += i * sink;
}

int main(int argc, char **argv) {
  struct ProfilerState state;
  if (argc != 2 || !ProfilerStart(argv[1])) {
    perror("ProfilerStart");
    return 1;
  }
  do {
    hot();
    ProfilerGetCurrentState(&state);
  } while (state.samples_gathered < 50);
  if (!state.enabled || strcmp(state.profile_name, argv[1]) != 0 || state.start_time == 0) return 2;
  ProfilerFlush();
  ProfilerStop();
  ProfilerGetCurrentState(&state);
  if (state.enabled || state.samples_gathered) return 3;
  if (state.profile_name[0] || state.start_time) return 4;
  return ProfilingIsEnabledForAllThreads();
}
