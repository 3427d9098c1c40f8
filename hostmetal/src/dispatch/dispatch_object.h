// Base class of dispatch objects: context and finalizer.
#ifndef HOSTMETAL_SRC_DISPATCH_DISPATCH_OBJECT_H_
#define HOSTMETAL_SRC_DISPATCH_DISPATCH_OBJECT_H_

#include <dispatch/dispatch.h>

#include "hostmetal/src/object.h"

@interface HMDispatchObject : HMObject <OS_dispatch_object> {
 @public
  std::atomic<void*> _context;
  std::atomic<dispatch_function_t> _finalizer;
}
@end

namespace hostmetal {

bool IsSerial(dispatch_queue_t queue);

// Runs function(context) on this thread as an item of the queue, unless it would have to wait for
// its turn: then it is not run, and the answer is false.
bool TryRunOn(dispatch_queue_t queue, void* context, dispatch_function_t function);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_DISPATCH_DISPATCH_OBJECT_H_
