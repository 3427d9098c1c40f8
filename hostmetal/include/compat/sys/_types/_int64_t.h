// macOS-internal header; it declares int64_t and nothing else.
#include <stdint.h>
