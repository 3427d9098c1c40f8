// GNUstep's own, before every @interface of its libraries: GCC compiled those and exports no symbol
// of a class, so that clang's code for other runtimes has to look them up by name.
#include_next <GNUstepBase/GSVersionMacros.h>

#ifdef __OBJFW_RUNTIME_ABI__
#undef GS_EXPORT_CLASS
#define GS_EXPORT_CLASS __attribute__((weak_import))
#endif
