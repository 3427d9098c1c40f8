// macOS-internal header that Apple's TensorFlow sample includes; it declares int32_t and nothing
// else.
#include <stdint.h>
