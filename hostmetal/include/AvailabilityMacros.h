// The older name of availability annotations.
#ifndef HOSTMETAL_AVAILABILITYMACROS_H_
#define HOSTMETAL_AVAILABILITYMACROS_H_

#include <Availability.h>

#endif  // HOSTMETAL_AVAILABILITYMACROS_H_
