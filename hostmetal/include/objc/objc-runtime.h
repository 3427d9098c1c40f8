// The older name of the runtime's headers.
#ifndef HOSTMETAL_OBJC_OBJC_RUNTIME_H_
#define HOSTMETAL_OBJC_OBJC_RUNTIME_H_

#include <objc/message.h>
#include <objc/runtime.h>

#endif  // HOSTMETAL_OBJC_OBJC_RUNTIME_H_
