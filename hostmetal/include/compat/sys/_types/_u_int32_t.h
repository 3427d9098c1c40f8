// macOS-internal header that declares u_int32_t and nothing else.
#include <sys/types.h>
