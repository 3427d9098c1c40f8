// Part of library.cc, with --coverage: at the process' end counts go to the folder HOSTMETAL_COVERAGE, and
// with them, before anything runs, the library itself, as it may be no file by then.

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

extern "C" {
// From clang's profile library, without its part that writes files.
unsigned long __llvm_profile_get_size_for_buffer(void);
int __llvm_profile_write_buffer(char*);
void __llvm_profile_reset_counters(void);
int __cxa_atexit(void (*)(void*), void*, void*);
int __register_atfork(void (*)(), void (*)(), void (*)(), void*);
}

namespace {
unsigned begun;                 // atomic
unsigned long coverage_digest;  // of this library
char coverage_folder[2048];

// Under another name first, as several processes write.
bool write_coverage(const char* name, const void* data, unsigned long size) {
  char unfinished[2304], path[2304];
  snprintf(path, sizeof path, "%s/%s", coverage_folder, name);
  snprintf(unfinished, sizeof unfinished, "%s.%d", path, int(getpid()));
  FILE* file = fopen(unfinished, "wb");
  bool done = file && fwrite(data, 1, size, file) == size;
  if (file) done = fclose(file) == 0 && done;
  if (done) done = rename(unfinished, path) == 0;
  if (!done) {
    fprintf(stderr, "metal: coverage: cannot write '%s': %s\n", path, strerror(errno));
    unlink(unfinished);
  }
  return done;
}

void keep_library() {
  Dl_info info;
  if (!dladdr(&begun, &info) || !info.dli_fname) return;
  FILE* file = fopen(info.dli_fname, "rb");
  if (!file) return;
  fseek(file, 0, SEEK_END);
  const long size = ftell(file);
  fseek(file, 0, SEEK_SET);
  char* data = size > 0 ? static_cast<char*>(malloc((unsigned long)size)) : nullptr;
  if (data && fread(data, 1, (unsigned long)size, file) == (unsigned long)size) {
    coverage_digest = 14695981039346656037ul;
    for (long i = 0; i < size; ++i) {
      coverage_digest = (coverage_digest ^ (unsigned char)data[i]) * 1099511628211ul;
    }
    char name[64];
    snprintf(name, sizeof name, "%016lx.metallib", coverage_digest);
    write_coverage(name, data, (unsigned long)size);
  }
  free(data);
  fclose(file);
}

void write_counts(void*) {
  const unsigned long size = __llvm_profile_get_size_for_buffer();
  char* data = static_cast<char*>(malloc(size));
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  char name[96];
  snprintf(name, sizeof name, "%016lx-%d-%lx%08lx.profraw", coverage_digest, int(getpid()),
           (unsigned long)now.tv_sec, (unsigned long)now.tv_nsec);
  if (data && __llvm_profile_write_buffer(data) == 0) write_coverage(name, data, size);
  free(data);
}
}  // namespace

MSL_HIDDEN void _msl_coverage() {
  if (__atomic_load_n(&begun, __ATOMIC_RELAXED)) return;
  if (__atomic_exchange_n(&begun, 1u, __ATOMIC_ACQ_REL)) return;
  const char* folder = getenv("HOSTMETAL_COVERAGE");
  if (!folder || !*folder) return;
  // The working folder may be another one in the end.
  char here[1024] = "";
  if (folder[0] != '/' && !getcwd(here, sizeof here)) return;
  snprintf(coverage_folder, sizeof coverage_folder, "%s%s%s", here, *here ? "/" : "", folder);
  mkdir(coverage_folder, 0777);
  keep_library();
  __cxa_atexit(write_counts, nullptr, nullptr);
  // A parent's counts are the parent's.
  __register_atfork(nullptr, nullptr, __llvm_profile_reset_counters, nullptr);
}
