// Sections of programs and libraries: those of -sectcreate, of `.section __DATA,__x` in assembly, and of
// __attribute__((section("__DATA,__x"))). hostmetal/src/images.cc.
#ifndef HOSTMETAL_MACH_O_GETSECT_H_
#define HOSTMETAL_MACH_O_GETSECT_H_

// A Mac's program knows _mh_execute_header by this one too.
#include <mach-o/ldsyms.h>
#include <mach-o/loader.h>

#ifdef __cplusplus
extern "C" {
#endif
// NULL where there is none; *size is not changed then.
uint8_t* getsectiondata(const struct mach_header_64* image, const char* segment, const char* name,
                        unsigned long* size);
// A section of the program, without its slide.
const struct section_64* getsectbyname(const char* segment, const char* name);
char* getsectdata(const char* segment, const char* name, unsigned long* size);
#ifdef __cplusplus
}
#endif

#endif  // HOSTMETAL_MACH_O_GETSECT_H_
