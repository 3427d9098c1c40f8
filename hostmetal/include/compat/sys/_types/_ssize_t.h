// macOS-internal header that declares ssize_t and nothing else.
#include <sys/types.h>
