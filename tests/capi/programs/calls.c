/* What gperftools' own tests assert of its functions, one case a run: calls CASE FILE. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <gperftools/profiler.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "check.h"

static struct ProfilerState state(void) {
  struct ProfilerState state;
  memset(&state, 0xff, sizeof state);
  ProfilerGetCurrentState(&state);
  return state;
}

/* One tick, whose stack is the same for all that a loop asks for. */
static void tick(void) { raise(SIGPROF); }

static void ticks(int n) {
  for (int i = 0; i < n; i++) tick();
}

static void stopped(const char *file) {
  (void)file;
  ProfilerStop();
  ProfilerFlush();
  ProfilerEnable();
  ProfilerDisable();
  ProfilerRegisterThread();
  ProfilerRegisterThread();
  CHECK(!ProfilingIsEnabledForAllThreads());
  struct ProfilerState now = state();
  CHECK(now.enabled == 0 && now.start_time == 0 && now.samples_gathered == 0);
  CHECK(now.profile_name[0] == 0);
}

/* Stop, flush and a tick while nothing is recorded change nothing. */
static void nothing_runs(const char *file) {
  stopped(file);
  CHECK(ProfilerStart(file));
  ticks(3);
  ProfilerStop();
  stopped(file);
  tick();
  stopped(file);
}

static void running(const char *file) {
  time_t before = time(NULL);
  CHECK(ProfilerStart(file));
  CHECK(ProfilingIsEnabledForAllThreads() == 1);
  struct ProfilerState now = state();
  CHECK(now.enabled == 1 && strcmp(now.profile_name, file) == 0);
  CHECK(now.start_time >= before && now.start_time <= time(NULL));
  /* Another start fails, and leaves this one alone. */
  errno = 0;
  CHECK(ProfilerStart("another") == 0 && errno == EBUSY);
  errno = 0;
  CHECK(ProfilerStartWithOptions("another", NULL) == 0 && errno == EBUSY);
  CHECK(access("another", F_OK) == -1);
  struct ProfilerState after = state();
  CHECK(after.enabled == 1 && strcmp(after.profile_name, file) == 0);
  CHECK(after.start_time == now.start_time);
  ticks(5);
  CHECK(state().samples_gathered >= 5);
  ProfilerStop();
}

static void no_file(const char *file) {
  (void)file;
  const struct {
    const char *name;
    int error;
  } bad[] = {{"no/such/directory", ENOENT}, {".", EISDIR}, {"/proc/1/mem/x", ENOTDIR}};
  for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
    errno = 0;
    int started = ProfilerStart(bad[i].name);
    if (started || errno != bad[i].error) {
      fprintf(stderr, "%s: %d, errno %d\n", bad[i].name, started, errno);
      exit(1);
    }
  }
  errno = 0;
  CHECK(ProfilerStart(NULL) == 0 && errno == EINVAL);
  stopped(file);
}


static void one_stack(const char *file) {
  CHECK(ProfilerStart(file));
  ticks(2);
  ProfilerStop();
}

static void flushed(const char *file) {
  CHECK(ProfilerStart(file));
  /* Both ticks come from one place. */
  for (int i = 0; i < 2; i++) {
    ticks(1);
    CHECK(state().samples_gathered >= i + 1);
    ProfilerFlush();
    CHECK(state().samples_gathered >= i + 1 && state().enabled);
  }
  /* What is flushed is a whole file: the test reads it, and the process dies without a stop. */
  kill(getpid(), SIGKILL);
}

/* The profile is written at the exit. */
static void not_stopped(const char *file) {
  CHECK(ProfilerStart(file));
  ticks(3);
}

/* What cannot be written anew is written once. */
static void flushed_to_stream(const char *file) {
  CHECK(ProfilerStart(file));
  for (int i = 0; i < 3; i++) {
    ticks(1);
    ProfilerFlush();
  }
  ProfilerStop();
}

static int is_blocked(int number) {
  sigset_t now;
  CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
  return sigismember(&now, number);
}

/* Whoever asks for it is recorded, and nobody's other signals are touched. */
static void blocked(const char *file) {
  sigset_t all;
  sigfillset(&all);
  CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
  CHECK(ProfilerStart(file));
  CHECK(!is_blocked(SIGPROF) && is_blocked(SIGUSR1));
  CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
  ProfilerRegisterThread();
  CHECK(!is_blocked(SIGPROF) && is_blocked(SIGUSR1));
  ticks(3);
  ProfilerStop();
  CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
  ProfilerRegisterThread();
  CHECK(is_blocked(SIGPROF));
}

static volatile int has_flushed;

static void exits(int number) {
  (void)number;
  exit(0);
}

static void *interrupts(void *thread) {
  while (has_flushed < 20) sched_yield();
  pthread_kill(*(pthread_t *)thread, SIGTERM);
  return NULL;
}

/* As servers do when they are told to end. */
static void exits_while_flushing(const char *file) {
  pthread_t self = pthread_self(), other;
  CHECK(signal(SIGTERM, exits) != SIG_ERR);
  CHECK(ProfilerStart(file));
  ticks(3);
  CHECK(pthread_create(&other, NULL, interrupts, &self) == 0);
  for (;;) {
    ProfilerFlush();
    has_flushed++;
  }
}

static void restarted(const char *file) {
  CHECK(ProfilerStart("first"));
  ticks(7);
  ProfilerStop();
  CHECK(state().samples_gathered == 0);
  CHECK(ProfilerStart(file));
  CHECK(state().samples_gathered < 7);
  ticks(2);
  ProfilerStop();
}

static int is_wanted;

static int filter(void *arg) {
  ++*(volatile int *)arg;
  return is_wanted;
}

static void start_filtered(const char *file, volatile int *calls) {
  struct ProfilerOptions options;
  memset(&options, 0, sizeof options);
  options.filter_in_thread = filter;
  options.filter_in_thread_arg = (void *)calls;
  CHECK(ProfilerStartWithOptions(file, &options));
}

/* A filter that drops all ticks leaves nothing, whenever the clock ticks. */
static void empty(const char *file) {
  volatile int calls = 0;
  start_filtered(file, &calls);
  ProfilerStop();
}

static void filtered(const char *file) {
  volatile int calls = 0;
  start_filtered(file, &calls);
  ticks(5);
  CHECK(calls >= 5);
  CHECK(state().samples_gathered == 0);
  is_wanted = 1;
  ticks(2);
  CHECK(calls >= 7);
  CHECK(state().samples_gathered >= 2);
  ProfilerStop();
  /* The next profile has no filter. */
  int last = calls;
  CHECK(ProfilerStart("second"));
  ticks(2);
  ProfilerStop();
  CHECK(calls == last);
}

/* The address of the live count of samples, behind the name's end. */
static volatile int *live_count(void) {
  struct ProfilerState now = state();
  uintptr_t address;
  memcpy(&address, now.profile_name + strlen(now.profile_name) + 1, sizeof address);
  return (volatile int *)address;
}

static void counter(const char *file) {
  volatile int *count = live_count();
  (void)*count;
  CHECK(ProfilerStart(file));
  CHECK(live_count() == count);
  ticks(4);
  /* The profiler's thread counts some time later. */
  while (*count < 4) usleep(1000);
  ProfilerStop();
  CHECK(live_count() == count);
}

static void on_foreign_tick(int number) { (void)number; }

/* A program's own handler for the signal stays, and the start fails. */
static void foreign_owner(const char *file) {
  struct sigaction now;
  CHECK(signal(SIGPROF, on_foreign_tick) == SIG_DFL);
  errno = 0;
  CHECK(ProfilerStart(file) == 0 && errno == EBUSY);
  CHECK(sigaction(SIGPROF, NULL, &now) == 0 && now.sa_handler == on_foreign_tick);
  CHECK(access(file, F_OK) == -1);
  stopped(file);
  CHECK(signal(SIGPROF, SIG_DFL) == on_foreign_tick);
  CHECK(ProfilerStart(file));
  ticks(2);
  ProfilerStop();
}

static void stops(void) { ProfilerStop(); }

/* The profile is stopped by what the program has asked for at its exit. */
static void stopped_at_exit(const char *file) {
  CHECK(atexit(stops) == 0);
  CHECK(ProfilerStart(file));
  ticks(2);
}

/* The profile is stopped by a library that is unloaded at the exit. */
static void stopped_by_library(const char *file) {
  CHECK(dlopen("./libstops.so", RTLD_NOW) != NULL);
  CHECK(ProfilerStart(file));
  ticks(2);
}

/* Does nothing. */
static void idle(const char *file) { (void)file; }

static const char *shared_file;

static void *starts_and_stops(void *arg) {
  for (int i = 0; i < 25; i++) {
    /* Another thread can be first. */
    ProfilerStart(shared_file);
    tick();
    ProfilerFlush();
    ProfilerStop();
  }
  return arg;
}

static void many_start_and_stop(const char *file) {
  pthread_t threads[4];
  shared_file = file;
  for (int i = 0; i < 4; i++)
    CHECK(pthread_create(&threads[i], NULL, starts_and_stops, NULL) == 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  stopped(file);
  CHECK(ProfilerStart(file));
  ticks(2);
  ProfilerStop();
}

static volatile int is_over;

static void *allocates(void *arg) {
  (void)arg;
  while (!is_over) free(malloc(rand() % 100000));
  return NULL;
}

static void while_others_allocate(const char *file) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, allocates, NULL) == 0);
  for (int i = 0; i < 20; i++) {
    CHECK(ProfilerStart(file));
    ticks(20);
    ProfilerFlush();
    ProfilerStop();
  }
  is_over = 1;
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

static int depth_of(int max_depth, int skip, const void *context) {
  enum { ROOM = 64 };
  void *frames[ROOM];
  void *guard = (void *)(uintptr_t)0x5a5a5a5a;
  for (int i = 0; i < ROOM; i++) frames[i] = guard;
  int depth = ProfilerGetStackTrace(frames, max_depth, skip, context);
  CHECK(depth >= 0 && depth <= (max_depth < 0 ? 0 : max_depth));
  for (int i = 0; i < ROOM; i++) CHECK((frames[i] == guard) == (i >= depth));
  return depth;
}

__attribute__((noinline)) static void checks_stacks(int levels) {
  if (levels > 0) {
    checks_stacks(levels - 1);
    __asm__ volatile("");
    return;
  }
  for (int most = 0; most <= 20; most++) CHECK(depth_of(most, 0, NULL) == most);
  CHECK(depth_of(20, 10240, NULL) == 0);
  CHECK(depth_of(-1, 0, NULL) == 0);
  /* Without n frames the stack is that of the n-th. */
  void *whole[12], *rest[8];
  CHECK(ProfilerGetStackTrace(whole, 12, 0, NULL) == 12);
  CHECK(ProfilerGetStackTrace(rest, 8, 4, NULL) == 8);
  CHECK(memcmp(whole + 4, rest, sizeof rest) == 0);
  /* The first is in this function, which called, and so is the second. */
  for (int i = 0; i < 2; i++) {
    uintptr_t into = (uintptr_t)whole[i] - (uintptr_t)checks_stacks;
    CHECK(into > 0 && into < 4096);
  }
}

static volatile sig_atomic_t is_handled, is_deep;

static void on_signal(int number, siginfo_t *info, void *context) {
  (void)number, (void)info;
  void *frames[3];
  /* What leads over a signal's frame is read from tables that are made after the start. */
  if (!is_deep) {
    is_deep = depth_of(20, 0, NULL) == 20;
    return;
  }
  CHECK(depth_of(3, 0, context) == 3);
  CHECK(depth_of(20, 0, context) == 20);
  CHECK(depth_of(20, 10240, context) == 0);
  CHECK(depth_of(20, 0, NULL) == 20);
  CHECK(ProfilerGetStackTrace(frames, 3, 0, context) == 3);
#ifdef __x86_64__
  CHECK((uintptr_t)frames[0] == (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]);
#endif
  is_handled++;
}

__attribute__((noinline)) static void raises(int levels) {
  if (levels > 0) {
    raises(levels - 1);
    __asm__ volatile("");
    return;
  }
  raise(SIGUSR1);
}

static void stack_traces(const char *file) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO;
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  checks_stacks(30);
  is_deep = 1;
  raises(30);
  CHECK(ProfilerStart(file));
  checks_stacks(30);
  for (is_deep = 0; !is_deep;) raises(30);
  raises(30);
  ProfilerStop();
  CHECK(is_handled == 2);
}

static int handlers_frames;

static void traces(int number) {
  (void)number;
  void *frames[64];
  handlers_frames = ProfilerGetStackTrace(frames, 64, 0, NULL);
  CHECK(handlers_frames > 0 && frames[handlers_frames - 1] != NULL);
}

/* Without a context, a stack leads over the signal's frame to what was interrupted. */
static void traced_in_handler(const char *file) {
  CHECK(signal(SIGUSR1, traces) != SIG_ERR);
  raise(SIGUSR1);
  int before = handlers_frames;
  /* Unwind rules are not compiled before the first tick. */
  CHECK(ProfilerStart(file));
  raise(SIGUSR1);
  CHECK(handlers_frames == before);
  ProfilerStop();
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(const char *file);
  } cases[] = {
      {"nothing_runs", nothing_runs},
      {"running", running},
      {"no_file", no_file},
      {"empty", empty},
      {"one_stack", one_stack},
      {"flushed", flushed},
      {"not_stopped", not_stopped},
      {"flushed_to_stream", flushed_to_stream},
      {"blocked", blocked},
      {"exits_while_flushing", exits_while_flushing},
      {"traced_in_handler", traced_in_handler},
      {"restarted", restarted},
      {"filtered", filtered},
      {"counter", counter},
      {"while_others_allocate", while_others_allocate},
      {"stack_traces", stack_traces},
      {"foreign_owner", foreign_owner},
      {"stopped_at_exit", stopped_at_exit},
      {"stopped_by_library", stopped_by_library},
      {"idle", idle},
      {"many_start_and_stop", many_start_and_stop},
  };
  CHECK(argc == 3);
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run(argv[2]);
      return 0;
    }
  }
  fprintf(stderr, "no case %s\n", argv[1]);
  return 2;
}
