// Types of CoreFoundation and its string literal; of its functions there are none.
#ifndef HOSTMETAL_COREFOUNDATION_COREFOUNDATION_H_
#define HOSTMETAL_COREFOUNDATION_COREFOUNDATION_H_

// The SDK's includes all of these, and what is written there relies on it.
#include <CoreFoundation/CFDate.h>
#include <TargetConditionals.h>
#include <assert.h>
#include <ctype.h>
#include <dispatch/dispatch.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

typedef const void* CFTypeRef;
typedef const struct __CFString* CFStringRef;
typedef const struct __CFArray* CFArrayRef;
typedef const struct __CFDictionary* CFDictionaryRef;
typedef const struct __CFURL* CFURLRef;
typedef const struct __CFData* CFDataRef;
typedef signed long CFIndex;
typedef unsigned long CFTypeID;
typedef unsigned long CFOptionFlags;
typedef unsigned long CFHashCode;
typedef unsigned char Boolean;

// An NSString that needs no release.
#define CFSTR(text) ((CFStringRef)__builtin___CFStringMakeConstantString("" text ""))

#endif  // HOSTMETAL_COREFOUNDATION_COREFOUNDATION_H_
