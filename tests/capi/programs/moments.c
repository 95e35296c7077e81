/*
 * What a program may do that is recorded without its knowing, one case a run: moments CASE. Each
 * works for 200 ms of CPU time, before and after what it does.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "hot.h"

extern char **environ;
static char **first_environ;

__attribute__((constructor)) static void remember(void) { first_environ = environ; }

static void nothing(void) { hot(200); }

/* Works at each of so many levels, with a frame of 200 KB for each. */
static void grow(int levels) {
  volatile char frame[200 * 1000];
  /* Each page, from the top, as compilers do it where they guard against a stack that is jumped
   * over. */
  for (long i = sizeof frame - 1; i >= 0; i -= 4096) frame[i] = 1;
  hot(20);
  if (levels > 1) grow(levels - 1);
  frame[0] = 1;
}

/* From one level to the next the stack is longer by more than was ever mapped for it. */
static void grows_the_stack(void) {
  hot(200);
  grow(10);
}

/* What the program has instead of the descriptors that it closed stays the program's. */
static void closes_descriptors(void) {
  hot(200);
  for (int fd = 0; fd < 1024; fd++) close(fd);
  for (int i = 0; i < 40; i++) {
    int file = open("data", O_CREAT | O_RDWR | O_APPEND, 0600);
    CHECK(file >= 0);
    /* The profiler may have a number for as long as it reads a file of /proc. The standard ones it
     * gives back: the program gets them. A perf event that is made anew may keep another. */
    while (i < 3 && file != i) {
      CHECK(close(file) == 0);
      file = open("data", O_RDWR | O_APPEND);
      CHECK(file >= 0);
    }
    CHECK(write(file, "x", 1) == 1);
  }
  hot(200);
  struct stat data;
  CHECK(fstat(0, &data) == 0 && data.st_size == 40);
}

static void changes_root(void) {
  hot(200);
  CHECK(mkdir("root", 0700) == 0 && chroot("root") == 0 && chdir("/") == 0);
  hot(200);
}

static void changes_user(void) {
  hot(200);
  CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
  hot(200);
}

static void blocks_signals(void) {
  sigset_t all;
  sigfillset(&all);
  hot(200);
  CHECK(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
  hot(200);
  sigset_t now;
  CHECK(sigprocmask(SIG_SETMASK, NULL, &now) == 0);
  /* What the C library tells of the mask. */
  for (int n = 1; n < 32; n++) {
    int never = n == SIGKILL || n == SIGSTOP;
    CHECK(never || n == SIGPROF || sigismember(&now, n));
  }
}

static volatile sig_atomic_t deliveries;

static void count(int number) {
  (void)number;
  deliveries++;
}

/* The program's own handler for SIGPROF, and its own signals, are served as without us. */
static void uses_sigprof(void) {
  hot(200);
  struct sigaction action, now;
  memset(&action, 0, sizeof action);
  action.sa_handler = count;
  CHECK(sigaction(SIGPROF, &action, NULL) == 0);
  hot(200);
  sig_atomic_t before = deliveries;
  for (int i = 0; i < 5; i++) raise(SIGPROF);
  CHECK(deliveries >= before + 5);
  CHECK(sigaction(SIGPROF, NULL, &now) == 0 && now.sa_handler == count);
}

static void has_no_children(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = count;
  CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
  hot(200);
  CHECK(waitpid(-1, NULL, __WALL) == -1 && errno == ECHILD);
  CHECK(deliveries == 0);
}

/* Pointers into the environment that the program took before `main` stay good. */
static void spawns_with_old_environment(void) {
  hot(200);
  int found = 0;
  for (char **variable = first_environ; *variable != NULL; variable++)
    found |= strncmp(*variable, "CPUPROFILE=", 11) == 0;
  CHECK(found);
  char *arguments[] = {"true", NULL};
  char **environments[] = {first_environ, environ};
  for (int i = 0; i < 2; i++) {
    pid_t child;
    int status;
    CHECK(posix_spawnp(&child, "true", NULL, NULL, arguments, environments[i]) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
}

/* As shells do with the variables that they take over. */
static void writes_variables(void) {
  for (char **variable = environ; *variable != NULL; variable++) {
    char *equals = strchr(*variable, '=');
    *equals = 0;
    *equals = '=';
  }
  hot(200);
}

/* The program takes the signal, and then leaves it to the system, which would end the program. */
static void leaves_sigprof_to_the_system(void) {
  CHECK(signal(SIGPROF, count) != SIG_ERR);
  sig_atomic_t before;
  do {
    before = deliveries;
    hot(200);
  } while (deliveries != before);
  CHECK(signal(SIGPROF, SIG_DFL) == count);
  hot(200);
}

static void writes_to_closed_stderr(void) {
  hot(200);
  CHECK(write(2, "a warning", 9) == -1 && errno == EBADF);
}

static void may_write_little(void) {
  struct rlimit limit = {100, 100};
  hot(200);
  CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* The first child's child goes on, when the first child has ended. */
static void daemonizes_twice(void) {
  hot(200);
  int ends[2];
  CHECK(pipe(ends) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child > 0) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return;
  }
  pid_t second = fork();
  if (second > 0) _exit(0);
  char byte;
  close(ends[1]);
  CHECK(second == 0 && read(ends[0], &byte, 1) == 0);
}

/* As servers do that go on in the background. */
static void daemonizes(void) {
  hot(200);
  int ends[2];
  CHECK(pipe(ends) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child > 0) return;
  /* Until the parent has gone. */
  char byte;
  close(ends[1]);
  CHECK(setsid() > 0 && read(ends[0], &byte, 1) == 0);
}

/* The code of a library that is loaded late is found without the main thread, too. */
static void *works_without_main(void *argument) {
  struct timespec a_while = {0, 100000000};
  hot(200);
  nanosleep(&a_while, NULL);
  CHECK(dlopen("libutil.so.1", RTLD_NOW) != NULL);
  nanosleep(&a_while, NULL);
  hot(200);
  return argument;
}

static void say_goodbye(void) { CHECK(write(1, "goodbye\n", 8) == 8); }

/* The last thread ends the process, some time after the main one has ended. */
static void main_thread_ends(void) {
  pthread_t thread;
  CHECK(atexit(say_goodbye) == 0);
  CHECK(pthread_create(&thread, NULL, works_without_main, NULL) == 0);
  CHECK(pthread_detach(thread) == 0);
  pthread_exit(NULL);
}

/* Another thread ends the process, while this one works. */
static void *ends_it(void *argument) {
  hot(200);
  exit(0);
  return argument;
}

static void another_thread_exits(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, ends_it, NULL) == 0);
  for (;;) hot(200);
}

/* Children that are forked and go on as this program, and end by `exit`. */
static void forks(void) {
  hot(200);
  for (int i = 0; i < 3; i++) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      hot(200);
      exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
}

/* A child gets the signal that its parent is to be recorded by. */
static void signals_child(void) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    for (int i = 0; i < 3; i++) {
      CHECK(raise(SIGUSR2) == 0);
      hot(200);
    }
    exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {
      {"nothing", nothing},
      {"grows_the_stack", grows_the_stack},
      {"closes_descriptors", closes_descriptors},
      {"changes_root", changes_root},
      {"changes_user", changes_user},
      {"blocks_signals", blocks_signals},
      {"uses_sigprof", uses_sigprof},
      {"has_no_children", has_no_children},
      {"spawns_with_old_environment", spawns_with_old_environment},
      {"writes_variables", writes_variables},
      {"leaves_sigprof_to_the_system", leaves_sigprof_to_the_system},
      {"writes_to_closed_stderr", writes_to_closed_stderr},
      {"may_write_little", may_write_little},
      {"daemonizes", daemonizes},
      {"daemonizes_twice", daemonizes_twice},
      {"main_thread_ends", main_thread_ends},
      {"another_thread_exits", another_thread_exits},
      {"forks", forks},
      {"signals_child", signals_child},
  };
  if (argc != 2) return 2;
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      return 0;
    }
  }
  return 2;
}
