/* Records its own CPU time between two calls, for a file that `go tool pprof` reads. */
#include <gperftools/profiler.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
  const double *first = a, *second = b;
  return (*first > *second) - (*first < *second);
}

static void sort_numbers(size_t n) {
  double *numbers = malloc(n * sizeof *numbers);
  if (numbers == NULL) return;
  for (size_t i = 0; i < n; i++) numbers[i] = rand();
  qsort(numbers, n, sizeof *numbers, compare);
  printf("the median is %.0f\n", numbers[n / 2]);
  free(numbers);
}

int main(void) {
  if (!ProfilerStart("profiled.pb.gz")) {
    perror("profiled.pb.gz");
    return 1;
  }
  sort_numbers(3000000);
  ProfilerStop();
  return 0;
}
