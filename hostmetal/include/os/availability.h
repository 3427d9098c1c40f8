// Same content under the SDK's other name.
#include <Availability.h>
