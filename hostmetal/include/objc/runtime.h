// GCC's <objc/runtime.h>, of which one inline function does not compile with automatic reference
// counting: object_getClass reads a member of an `id`.
#ifndef HOSTMETAL_OBJC_RUNTIME_H_
#define HOSTMETAL_OBJC_RUNTIME_H_

#include <objc/objc.h>

#if defined(__OBJC__) && __has_feature(objc_arc)
static inline Class hostmetal_class_of(id object) {
  return *(const Class*)(__bridge const void*)object;
}
// Its body is `if (object != nil) return object->class_pointer; else return Nil;`. The class is
// returned before that member is read, and the member is that of another variable by then.
#pragma push_macro("nil")
#undef nil
#define nil                                 \
  (id)0) return hostmetal_class_of(object); \
  for (struct objc_object* object = 0;;) if (object != 0
#include_next <objc/runtime.h>
#pragma pop_macro("nil")
#else
#include_next <objc/runtime.h>
#endif

#endif  // HOSTMETAL_OBJC_RUNTIME_H_
