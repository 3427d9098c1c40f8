// A part of <mach/mach.h>, which programs include by itself.
#ifndef HOSTMETAL_MACH_VM_STATISTICS_H_
#define HOSTMETAL_MACH_VM_STATISTICS_H_

#include <mach/mach.h>

#endif  // HOSTMETAL_MACH_VM_STATISTICS_H_
