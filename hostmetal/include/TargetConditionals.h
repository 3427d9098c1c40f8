// Apple's platform switches: those of macOS, whose Metal this is. A program that asks has Mac and
// iPhone in mind, not whether it compiles on one, and C++ wrappers of Metal list devices on a Mac only.
#ifndef HOSTMETAL_TARGET_CONDITIONALS_H_
#define HOSTMETAL_TARGET_CONDITIONALS_H_

#define TARGET_OS_MAC 1
#define TARGET_OS_OSX 1
#define TARGET_OS_IPHONE 0
#define TARGET_OS_IOS 0
#define TARGET_OS_TV 0
#define TARGET_OS_WATCH 0
#define TARGET_OS_VISION 0
#define TARGET_OS_MACCATALYST 0
#define TARGET_OS_SIMULATOR 0
#define TARGET_OS_LINUX 1
#define TARGET_OS_UNIX 1
#define TARGET_RT_64_BIT 1
#if defined(__x86_64__)
#define TARGET_CPU_X86_64 1
#define TARGET_CPU_ARM64 0
#else
#define TARGET_CPU_X86_64 0
#define TARGET_CPU_ARM64 1
#endif

#endif  // HOSTMETAL_TARGET_CONDITIONALS_H_
