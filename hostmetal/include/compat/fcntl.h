// C's <fcntl.h>, and the commands with which programs on a Mac read large files.
#include_next <fcntl.h>

#ifndef HOSTMETAL_FCNTL_H_
#define HOSTMETAL_FCNTL_H_

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define F_RDADVISE 44
#define F_RDAHEAD 45
#define F_NOCACHE 48
#define F_GETPATH 50
#define F_FULLFSYNC 51

struct radvisory {
  off_t ra_offset;
  int ra_count;
};

// The numbers are a Mac's, which have no other meaning on Linux.
static inline int hostmetal_fcntl(int file, int command, ...) {
  va_list more;
  va_start(more, command);
  void* pointer = va_arg(more, void*);
  va_end(more);
  int failed = 0;
  switch (command) {
#ifdef POSIX_FADV_WILLNEED
    case F_RDADVISE: {
      const struct radvisory* wanted = (const struct radvisory*)pointer;
      failed = posix_fadvise(file, wanted->ra_offset, wanted->ra_count, POSIX_FADV_WILLNEED);
      break;
    }
    case F_RDAHEAD:
      failed =
          posix_fadvise(file, 0, 0, (int)(intptr_t)pointer ? POSIX_FADV_NORMAL : POSIX_FADV_RANDOM);
      break;
    case F_NOCACHE:  // cached pages go; later reads bring them again
      failed = (int)(intptr_t)pointer ? posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) : 0;
      break;
#endif
    case F_FULLFSYNC:
      return fsync(file);
    case F_GETPATH: {
      char name[64];
      snprintf(name, sizeof name, "/proc/self/fd/%d", file);
      const ssize_t length = readlink(name, (char*)pointer, PATH_MAX - 1);
      if (length < 0) return -1;
      ((char*)pointer)[length] = 0;
      return 0;
    }
    default:
      return fcntl(file, command, pointer);
  }
  if (failed) errno = failed;
  return failed ? -1 : 0;
}
#define fcntl(...) hostmetal_fcntl(__VA_ARGS__)

#endif  // HOSTMETAL_FCNTL_H_
