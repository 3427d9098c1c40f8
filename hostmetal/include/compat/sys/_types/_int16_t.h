// macOS-internal header; it declares int16_t and nothing else.
#include <stdint.h>
