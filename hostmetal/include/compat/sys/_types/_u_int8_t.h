// macOS-internal header that declares u_int8_t and nothing else.
#include <sys/types.h>
