// The runtime's <objc/objc.h>, with Apple's spellings of its constants: GCC's casts make `@YES` not
// parse and keep `nil` from being a pointer of another kind, as in `error:nil`.
#ifndef HOSTMETAL_OBJC_OBJC_H_
#define HOSTMETAL_OBJC_OBJC_H_

#include <Availability.h>
#include <objc/load_first.h>
#include_next <objc/objc.h>

#ifdef __OBJC__
#undef YES
#undef NO
#define YES __objc_yes
#define NO __objc_no
#endif
#ifdef __cplusplus
#undef nil
#undef Nil
#define nil nullptr
#define Nil nullptr
#elif defined(__OBJC__)
#undef nil
#undef Nil
#define nil ((void*)0)
#define Nil ((void*)0)
#endif

#endif  // HOSTMETAL_OBJC_OBJC_H_
