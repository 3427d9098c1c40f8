// A part of <mach/mach.h>, which programs include by itself.
#ifndef HOSTMETAL_MACH_KERN_RETURN_H_
#define HOSTMETAL_MACH_KERN_RETURN_H_

#include <mach/mach.h>

#endif  // HOSTMETAL_MACH_KERN_RETURN_H_
