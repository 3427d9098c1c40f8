// Where the program, or the library that the file is linked into, begins.
#ifndef HOSTMETAL_MACH_O_LDSYMS_H_
#define HOSTMETAL_MACH_O_LDSYMS_H_

#include <mach-o/loader.h>

#ifdef __cplusplus
extern "C" {
#endif
extern const struct mach_header_64 _mh_execute_header __asm__("__ehdr_start")
    __attribute__((visibility("hidden")));
extern const struct mach_header_64 _mh_dylib_header __asm__("__ehdr_start")
    __attribute__((visibility("hidden")));
extern const struct mach_header_64 _mh_bundle_header __asm__("__ehdr_start")
    __attribute__((visibility("hidden")));
#ifdef __cplusplus
}
#endif

#endif  // HOSTMETAL_MACH_O_LDSYMS_H_
