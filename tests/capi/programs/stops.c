/* A library that stops the profile when the process ends. */
#include <gperftools/profiler.h>

__attribute__((destructor)) static void stops(void) { ProfilerStop(); }

void be_loaded(void) {}
