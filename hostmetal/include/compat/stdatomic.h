// clang's <stdatomic.h> includes the next one of that name, and behind it lies GCC's, which clang
// rejects: GCC's folder is on the path for objc/. Without a hosting library clang's is complete.
#pragma clang system_header
#ifndef __cplusplus
#undef __STDC_HOSTED__
#define __STDC_HOSTED__ 0
#include_next <stdatomic.h>
#undef __STDC_HOSTED__
#define __STDC_HOSTED__ 1
#else
#include_next <stdatomic.h>
#endif
