// What programs ask a Mac's kernel about the machine, as far as the names have a meaning here.
#ifndef HOSTMETAL_SYSCTL_H_
#define HOSTMETAL_SYSCTL_H_

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

// The value, whose size becomes *length, or -1 with ENOENT: a Mac has not every name either.
static inline int sysctlbyname(const char* name, void* value, size_t* length, void* changed,
                               size_t changed_length) {
  int64_t found = 0;
  size_t size = sizeof(int32_t);
  (void)changed_length;
  if (changed) return errno = EPERM, -1;
  if (!strcmp(name, "hw.memsize")) {
    found = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    size = sizeof found;
  } else if (!strcmp(name, "hw.pagesize")) {
    found = sysconf(_SC_PAGESIZE);
    size = sizeof found;
  } else if (!strcmp(name, "hw.ncpu") || !strcmp(name, "hw.logicalcpu") ||
             !strcmp(name, "hw.activecpu")) {
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
