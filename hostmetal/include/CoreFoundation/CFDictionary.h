// A part of CoreFoundation, which programs include by itself.
#ifndef HOSTMETAL_COREFOUNDATION_CFDICTIONARY_H_
#define HOSTMETAL_COREFOUNDATION_CFDICTIONARY_H_

#include <CoreFoundation/CoreFoundation.h>

#endif  // HOSTMETAL_COREFOUNDATION_CFDICTIONARY_H_
