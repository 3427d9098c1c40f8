// The questions of programs to a Mac's kernel about the machine, as far as the names have a meaning
// here.
#ifndef HOSTMETAL_SYSCTL_H_
#define HOSTMETAL_SYSCTL_H_

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static inline int hostmetal_sysctl_text(const char* text, void* value, size_t* length) {
  const size_t size = strlen(text) + 1;
  if (value && *length < size) return errno = ENOMEM, -1;
  if (value) memcpy(value, text, size);
  *length = size;
  return 0;
}

// The processor's name, as the system has it.
static inline int hostmetal_sysctl_processor(void* value, size_t* length) {
  char line[256];
  const char* found = "";
  FILE* file = fopen("/proc/cpuinfo", "r");
  while (file && fgets(line, sizeof line, file)) {
    if (strncmp(line, "model name", 10) || !strstr(line, ": ")) continue;
    line[strcspn(line, "\n")] = 0;
    found = strstr(line, ": ") + 2;
    break;
  }
  if (file) fclose(file);
  return *found ? hostmetal_sysctl_text(found, value, length) : (errno = ENOENT, -1);
}

// The value, whose size becomes *length, or -1 with ENOENT: a Mac does not have every name either.
static inline int sysctlbyname(const char* name, void* value, size_t* length, void* changed,
                               size_t changed_length) {
  int64_t found = 0;
  size_t size = sizeof(int32_t);
  (void)changed_length;
  if (changed) return errno = EPERM, -1;
  if (!strcmp(name, "machdep.cpu.brand_string")) return hostmetal_sysctl_processor(value, length);
  if (!strcmp(name, "kern.osproductversion")) return hostmetal_sysctl_text("15.0", value, length);
  if (!strcmp(name, "hw.memsize")) {
    found = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    size = sizeof found;
  } else if (!strcmp(name, "hw.pagesize")) {
    found = sysconf(_SC_PAGESIZE);
    size = sizeof found;
  } else if (!strcmp(name, "hw.ncpu") || !strcmp(name, "hw.logicalcpu") ||
             !strcmp(name, "hw.activecpu") || !strcmp(name, "hw.logicalcpu_max") ||
             !strcmp(name, "hw.physicalcpu") || !strcmp(name, "hw.physicalcpu_max")) {
    // Two threads of a core are two processors here.
    found = sysconf(_SC_NPROCESSORS_ONLN);
  } else {
    return errno = ENOENT, -1;
  }
  if (value && *length < size) return errno = ENOMEM, -1;
  if (value) memcpy(value, &found, size);  // the lower half first: little-endian
  *length = size;
  return 0;
}

#endif  // HOSTMETAL_SYSCTL_H_
