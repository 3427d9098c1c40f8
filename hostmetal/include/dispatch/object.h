// Reference counts, contexts and finalizers of dispatch objects.
#ifndef HOSTMETAL_DISPATCH_OBJECT_H_
#define HOSTMETAL_DISPATCH_OBJECT_H_

#include <dispatch/base.h>

#if defined(__OBJC__) && __has_feature(objc_arc)
#define HOSTMETAL_NOT_WITH_ARC \
  __attribute__((unavailable("not available in automatic reference counting mode")))
#else
#define HOSTMETAL_NOT_WITH_ARC
#endif

DISPATCH_EXPORT void dispatch_retain(dispatch_object_t object) HOSTMETAL_NOT_WITH_ARC;
DISPATCH_EXPORT void dispatch_release(dispatch_object_t object) HOSTMETAL_NOT_WITH_ARC;
DISPATCH_EXPORT void* dispatch_get_context(dispatch_object_t object);
DISPATCH_EXPORT void dispatch_set_context(dispatch_object_t object, void* context);
// Runs on an arbitrary thread when the last reference is gone, if the context is not NULL.
DISPATCH_EXPORT void dispatch_set_finalizer_f(dispatch_object_t object,
                                              dispatch_function_t finalizer);

#endif  // HOSTMETAL_DISPATCH_OBJECT_H_
