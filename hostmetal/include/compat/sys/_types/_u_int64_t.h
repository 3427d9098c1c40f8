// macOS-internal header that declares u_int64_t and nothing else.
#include <sys/types.h>
