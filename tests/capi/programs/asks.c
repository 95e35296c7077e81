/* Asks `entries.c` once all libraries have been loaded: the first one of LD_PRELOAD, whose
   constructors are called last. */
extern int changed_entries(const char *when);

__attribute__((constructor)) static void asks(void) { changed_entries("at the start"); }
