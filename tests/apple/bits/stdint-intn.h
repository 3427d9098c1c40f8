// In glibc's place: int64_t is long long as on macOS, and thus another type than long.

#ifndef METAL_OPS_TESTS_APPLE_BITS_STDINT_INTN_H_
#define METAL_OPS_TESTS_APPLE_BITS_STDINT_INTN_H_

typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;

#endif  // METAL_OPS_TESTS_APPLE_BITS_STDINT_INTN_H_
