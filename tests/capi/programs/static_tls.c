/* A library that takes room from what the C library keeps for thread-locals that have a fixed place. */
__attribute__((tls_model("initial-exec"))) __thread char taken[500];

char *take(void) { return taken; }
