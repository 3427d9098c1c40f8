// macOS-internal header that declares size_t and nothing else.
#include <sys/types.h>
