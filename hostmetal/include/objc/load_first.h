// A file's classes, selectors and literals are known before anything of the program or library that it is part of runs,
// as on a Mac: before initialisers of C++ and functions with __attribute__((constructor)), whichever file these are in.
// clang has its own function for that, which runs in the turn of the file, after the file's initialisers. Here an
// initialiser of the first priority calls those of all files: hostmetal/src/objc_load.mm.
#ifndef HOSTMETAL_OBJC_LOAD_FIRST_H_
#define HOSTMETAL_OBJC_LOAD_FIRST_H_

#if defined(__OBJC__) && defined(__clang__)
#pragma clang system_header

// Its address, or 0 where a file has nothing of Objective-C. It is a name of the assembler's alone.
__asm__(
    ".weakref hostmetal_load_function, .objc_load_function\n"
    ".pushsection hostmetal_load_functions, \"awR\", %progbits\n"
    ".p2align 3\n"
    ".quad hostmetal_load_function\n"
    ".popsection\n");

#ifdef __cplusplus
extern "C" {
#endif
// The functions of this program or library, collected by the linker.
extern void (*__start_hostmetal_load_functions[])(void) __attribute__((visibility("hidden")));
extern void (*__stop_hostmetal_load_functions[])(void) __attribute__((visibility("hidden")));
void hostmetal_load_objects(void (**first)(void), void (**last)(void));
#ifdef __cplusplus
}
#endif

__attribute__((constructor(100))) static void hostmetal_load_first(void) {
  hostmetal_load_objects(__start_hostmetal_load_functions, __stop_hostmetal_load_functions);
}
#endif

#endif  // HOSTMETAL_OBJC_LOAD_FIRST_H_
