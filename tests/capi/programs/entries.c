/* The words through which the modules of a process call functions of other modules: what they are
   when this library is loaded, and how many are others later, on stderr.

   The last library of LD_PRELOAD, so that it is loaded first, and its function is called last at the
   exit. With LD_BIND_NOW=1, without which the loader changes the words itself. */
#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __x86_64__
#define IS_ENTRY(type) ((type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_JUMP_SLOT)
#else
#define IS_ENTRY(type) ((type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_JUMP_SLOT)
#endif

#define MOST 200000

static struct {
  const ElfW(Addr) * entry;
  ElfW(Addr) was;
} entries[MOST];
static int count;

static void note_all(ElfW(Addr) base, const ElfW(Rela) * relocations, size_t bytes) {
  for (size_t i = 0; relocations && i < bytes / sizeof *relocations; i++)
    if (IS_ENTRY(ELF64_R_TYPE(relocations[i].r_info)) && count < MOST) {
      entries[count].entry = (const ElfW(Addr) *)(base + relocations[i].r_offset);
      entries[count].was = *entries[count].entry;
      count++;
    }
}

static int note_module(struct dl_phdr_info *module, size_t size, void *data) {
  (void)size, (void)data;
  for (int i = 0; i < module->dlpi_phnum; i++) {
    if (module->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const ElfW(Rela) *relocations = NULL, *calls = NULL;
    size_t bytes = 0, call_bytes = 0;
    ElfW(Dyn) *dynamic = (ElfW(Dyn) *)(module->dlpi_addr + module->dlpi_phdr[i].p_vaddr);
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
      ElfW(Addr) value = dynamic->d_un.d_val;
      if (dynamic->d_tag == DT_RELA) relocations = (const ElfW(Rela) *)value;
      if (dynamic->d_tag == DT_RELASZ) bytes = value;
      if (dynamic->d_tag == DT_JMPREL) calls = (const ElfW(Rela) *)value;
      if (dynamic->d_tag == DT_PLTRELSZ) call_bytes = value;
    }
    /* The kernel's own module, which is mapped and not loaded, has addresses of the file. */
    if ((ElfW(Addr))relocations < module->dlpi_addr) relocations = NULL;
    if ((ElfW(Addr))calls < module->dlpi_addr) calls = NULL;
    note_all(module->dlpi_addr, relocations, bytes);
    note_all(module->dlpi_addr, calls, call_bytes);
  }
  return 0;
}

int changed_entries(const char *when) {
  int changed = 0;
  for (int i = 0; i < count; i++) changed += *entries[i].entry != entries[i].was;
  fprintf(stderr, "%s, %d of %d entries have changed\n", when, changed, count);
  return changed;
}

static void ask_at_exit(void) { changed_entries("at the exit"); }

__attribute__((constructor)) static void note(void) {
  dl_iterate_phdr(note_module, NULL);
  atexit(ask_at_exit);
}
