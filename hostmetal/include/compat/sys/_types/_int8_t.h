// macOS-internal header; it declares int8_t and nothing else.
#include <stdint.h>
