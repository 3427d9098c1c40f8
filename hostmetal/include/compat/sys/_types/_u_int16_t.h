// macOS-internal header that declares u_int16_t and nothing else.
#include <sys/types.h>
