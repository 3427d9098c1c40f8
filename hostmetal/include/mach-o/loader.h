// A Mac's names for the layout of a program or library in memory. Here it is an ELF image, of which these are the first
// bytes and the sections.
#ifndef HOSTMETAL_MACH_O_LOADER_H_
#define HOSTMETAL_MACH_O_LOADER_H_

#include <stdint.h>

struct mach_header_64 {
  unsigned char elf[32];
};
struct mach_header {
  unsigned char elf[32];
};

struct section_64 {
  char sectname[16];
  char segname[16];
  uint64_t addr;  // without the image's slide
  uint64_t size;
};

#endif  // HOSTMETAL_MACH_O_LOADER_H_
