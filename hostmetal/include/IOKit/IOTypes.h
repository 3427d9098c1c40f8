// A part of IOKit, which programs include by itself.
#ifndef HOSTMETAL_IOKIT_IOTYPES_H_
#define HOSTMETAL_IOKIT_IOTYPES_H_

#include <IOKit/IOKitLib.h>

#endif  // HOSTMETAL_IOKIT_IOTYPES_H_
