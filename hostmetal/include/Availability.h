// Availability annotations of Apple's SDK; there is one version of hostmetal, so they say nothing.
#ifndef HOSTMETAL_AVAILABILITY_H_
#define HOSTMETAL_AVAILABILITY_H_

#include <TargetConditionals.h>

#ifndef API_AVAILABLE
#define API_AVAILABLE(...)
#define API_UNAVAILABLE(...)
#define API_DEPRECATED(...)
#define API_DEPRECATED_WITH_REPLACEMENT(...)
#define API_AVAILABLE_BEGIN(...)
#define API_AVAILABLE_END
#define API_UNAVAILABLE_BEGIN(...)
#define API_UNAVAILABLE_END
#endif

#endif  // HOSTMETAL_AVAILABILITY_H_
