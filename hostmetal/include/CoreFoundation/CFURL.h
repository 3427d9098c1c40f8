// A part of CoreFoundation, which programs include by itself.
#ifndef HOSTMETAL_COREFOUNDATION_CFURL_H_
#define HOSTMETAL_COREFOUNDATION_CFURL_H_

#include <CoreFoundation/CoreFoundation.h>

#endif  // HOSTMETAL_COREFOUNDATION_CFURL_H_
