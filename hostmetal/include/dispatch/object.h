// Reference counts, contexts and finalizers of dispatch objects.
#ifndef HOSTMETAL_DISPATCH_OBJECT_H_
#define HOSTMETAL_DISPATCH_OBJECT_H_

#include <dispatch/base.h>

DISPATCH_EXPORT void dispatch_retain(dispatch_object_t object);
DISPATCH_EXPORT void dispatch_release(dispatch_object_t object);
DISPATCH_EXPORT void* dispatch_get_context(dispatch_object_t object);
DISPATCH_EXPORT void dispatch_set_context(dispatch_object_t object, void* context);
// Runs on an arbitrary thread when the last reference is gone, if the context is not NULL.
DISPATCH_EXPORT void dispatch_set_finalizer_f(dispatch_object_t object,
                                              dispatch_function_t finalizer);

#endif  // HOSTMETAL_DISPATCH_OBJECT_H_
