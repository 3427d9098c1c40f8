// The images of a process, the program first. hostmetal/src/images.cc.
#ifndef HOSTMETAL_MACH_O_DYLD_H_
#define HOSTMETAL_MACH_O_DYLD_H_

#include <mach-o/loader.h>

#ifdef __cplusplus
extern "C" {
#endif
// -1 with the size that is needed where it is larger.
int _NSGetExecutablePath(char* path, uint32_t* size);
uint32_t _dyld_image_count(void);
const struct mach_header* _dyld_get_image_header(uint32_t index);
intptr_t _dyld_get_image_vmaddr_slide(uint32_t index);
const char* _dyld_get_image_name(uint32_t index);
#ifdef __cplusplus
}
#endif

#endif  // HOSTMETAL_MACH_O_DYLD_H_
