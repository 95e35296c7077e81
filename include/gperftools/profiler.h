/*
 * sigprof's CPU profiler, by the names of gperftools' <gperftools/profiler.h>.
 *
 * A program that is linked with gperftools' libprofiler can be linked with libsigprof instead, or
 * have it preloaded, without being compiled anew. Link with -lsigprof. The functions may be called
 * from any thread, in C and in C++; in a signal handler none but ProfilerGetStackTrace.
 *
 * A program needs none of them where the environment says what to record: CPUPROFILE=file.
 */
#ifndef SIGPROF_GPERFTOOLS_PROFILER_H_
#define SIGPROF_GPERFTOOLS_PROFILER_H_

#include <time.h>

/* gperftools' mark of what a library exports; some programs use it in their own declarations. */
#ifndef PERFTOOLS_DLL_DECL
#define PERFTOOLS_DLL_DECL
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What to record with. Zero it before its fields are set: later versions may have more fields. */
struct ProfilerOptions {
  /*
   * Called at each tick, on the thread that the tick falls on, with filter_in_thread_arg. Where the
   * result is 0, the tick is neither recorded nor counted. The function runs in a signal handler,
   * so it has to be async-signal-safe. NULL keeps all ticks.
   */
  int (*filter_in_thread)(void *arg);
  void *filter_in_thread_arg;
};

/* What a profile has come to. While none is recorded, all is 0. */
struct ProfilerState {
  int enabled;             /* 1 while a profile is recorded. */
  time_t start_time;       /* When it was started. */
  char profile_name[1024]; /* The file that it is written to, cut to 1023 bytes. */
  int samples_gathered;    /* The ticks so far that the filter kept. */
};

/*
 * Starts to record the CPU time of all threads. ProfilerStop writes the profile to `fname`: in the
 * format of google/pprof where the name ends in .pb.gz, .pprof or .pb, else in that of gperftools.
 * A file that is there already stays whole until then. A profile that is not stopped is written at
 * the exit. The calling thread's SIGPROF and SIGURG are unblocked.
 *
 * Returns 1, or 0 with errno: EBUSY where a profile is recorded already, which goes on, or where
 * the program has a SIGPROF handler of its own; EINVAL where a variable of the environment is not
 * what it can be, which a line on stderr tells; else why the file cannot be written, or why the
 * system refuses the clocks.
 */
PERFTOOLS_DLL_DECL int ProfilerStart(const char *fname);

/* The same with options. NULL stands for none. */
PERFTOOLS_DLL_DECL int ProfilerStartWithOptions(const char *fname,
                                                const struct ProfilerOptions *options);

/* Stops, and writes the file. Does nothing while no profile is recorded. */
PERFTOOLS_DLL_DECL void ProfilerStop(void);

/*
 * Writes the profile so far to the file, whole and readable, and goes on. Does nothing while no
 * profile is recorded, or where the file is a pipe or a device, which cannot be written anew.
 */
PERFTOOLS_DLL_DECL void ProfilerFlush(void);

/* Whether a profile is recorded: 1 or 0. */
PERFTOOLS_DLL_DECL int ProfilingIsEnabledForAllThreads(void);

/* Stores what the profile has come to. */
PERFTOOLS_DLL_DECL void ProfilerGetCurrentState(struct ProfilerState *state);

/*
 * Stores the calling thread's call chain in `result`, innermost first, without the first
 * `skip_count` frames, and returns how many addresses it stored: `max_depth` at most. With
 * `ucontext`, the third argument of a signal's handler, the first is where the signal interrupted
 * the thread; with NULL, the return address in the caller. Async-signal-safe while a profile is
 * recorded.
 */
PERFTOOLS_DLL_DECL int ProfilerGetStackTrace(void **result, int max_depth, int skip_count,
                                             const void *ucontext);

/*
 * Unblocks SIGPROF and SIGURG on the calling thread while a profile is recorded. Not needed else:
 * every thread is recorded from its beginning. Harmless however often it is called.
 */
PERFTOOLS_DLL_DECL void ProfilerRegisterThread(void);

/* These two do nothing, as in gperftools. */
PERFTOOLS_DLL_DECL void ProfilerEnable(void);
PERFTOOLS_DLL_DECL void ProfilerDisable(void);

#ifdef __cplusplus
}
#endif

#endif /* SIGPROF_GPERFTOOLS_PROFILER_H_ */
